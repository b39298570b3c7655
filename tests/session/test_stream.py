"""What a stream without turns needs: its input counted, texts for the model, and a mute."""

from dataclasses import replace

import pytest

from session.config import MAX_INSTRUCTIONS_CHARS, PlaybackCommitPolicy, SessionLimits
from session.context import ContextMessage
from session.effects import ConfigureStages, SubmitUnit, WakeAt
from session.errors import StageFailed
from session.events import (
    ErrorRaised,
    SessionUpdated,
)
from session.item_events import (
    ItemAdded,
)
from session.stimuli import CloseRequested, ConfigureFailed, Ticked
from session.stream_events import ContextAccepted, InputCounted, InputMuteChanged
from session.stream_stimuli import ContextAppended, ContextUse, InputMuteSet
from tests.session.driver import AUTO, AUTO_VAD, PROFILE, Driver, names, speaking

COUNTING = replace(AUTO, counts_input=True)
UPDATABLE = replace(PROFILE, updatable=frozenset({"instructions"}))
INSTRUCTIONS = ContextAppended(ContextUse.INSTRUCTIONS, "Speak French.", "i1")


def counted(d: Driver, ms: int) -> list[int]:
    return [event.input_ms for event in d.said(InputCounted, d.append(ms))]


def test_input_is_counted_in_whole_frames() -> None:
    d = Driver(COUNTING)
    assert [counted(d, ms) for ms in (100, 100, 199, 1, 20, 1000)] == [
        [], [200], [], [400], [], [1400],
    ]  # fmt: skip


def test_the_count_comes_before_what_the_input_leads_to() -> None:
    d = Driver(COUNTING)
    assert names(d.append(1000)) == ["InputCounted", "SubmitUnit"]


def test_refused_input_counts_too() -> None:
    d = Driver(replace(COUNTING), limits=None)
    d.append(1000)
    huge = d.append(600_000)
    assert names(huge) == ["InputCounted", "ErrorRaised"]
    assert d.said(InputCounted)[-1].input_ms == 601_000


def test_it_is_counted_only_for_who_wants_it() -> None:
    d = Driver()
    assert counted(d, 1000) == []


def test_an_appendix_is_added_to_the_instructions_in_force() -> None:
    d = Driver(replace(AUTO, instructions="Be brief."), profile=UPDATABLE)
    effects = d.do(INSTRUCTIONS)
    [asked] = d.asked(ConfigureStages, effects)
    assert asked.runtime.instructions == "Be brief.\n\nSpeak French."
    effects = d.configured()
    assert d.said(ContextAccepted, effects) == [ContextAccepted(ContextUse.INSTRUCTIONS, "i1")]
    assert not d.said(SessionUpdated, effects)
    d.do(replace(INSTRUCTIONS, text="No jokes."))
    d.configured()
    assert d.session.config.instructions == "Be brief.\n\nSpeak French.\n\nNo jokes."


def test_without_instructions_the_appendix_is_all_of_them() -> None:
    d = Driver(profile=UPDATABLE)
    d.do(INSTRUCTIONS)
    d.configured()
    assert d.session.config.instructions == "Speak French."


def test_a_refused_appendix_takes_nothing_else_with_it() -> None:
    d = Driver(profile=UPDATABLE)
    d.do(INSTRUCTIONS)
    d.do(replace(INSTRUCTIONS, text="No jokes.", event_id="i2"))
    asked = d.asked(ConfigureStages)[-1]
    d.do(ConfigureFailed(asked.fence, asked.generation, StageFailed("no")))
    assert d.said(ErrorRaised)[-1].event_id == "i1"
    d.configured()
    assert d.session.config.instructions == "No jokes."


def test_a_model_whose_instructions_stay_refuses_it() -> None:
    d = Driver()
    [error] = d.said(ErrorRaised, d.do(INSTRUCTIONS))
    assert error.error.wire_code == "instructions_update_unsupported"
    assert error.event_id == "i1"


def test_instructions_do_not_grow_for_ever() -> None:
    d = Driver(replace(AUTO, instructions="x" * (MAX_INSTRUCTIONS_CHARS - 10)), profile=UPDATABLE)
    [error] = d.said(ErrorRaised, d.do(INSTRUCTIONS))
    assert error.error.wire_code == "string_above_max_length"


TELLING = replace(PROFILE, messages=True)
COMMENT = ContextAppended(ContextUse.COMMENTARY, "The parcel has come.", "c1")
PARCEL = ContextMessage("system", "The parcel has come.")


def test_a_thought_goes_along_with_what_is_heard_next() -> None:
    d = Driver(profile=TELLING)
    effects = d.do(replace(COMMENT, use=ContextUse.THINKING))
    assert names(effects) == ["ItemAdded", "ItemDone", "ContextAccepted"]
    assert d.said(ContextAccepted) == [ContextAccepted(ContextUse.THINKING, "c1")]
    d.append(1000)
    assert d.last_unit().unit.messages == (PARCEL,)
    assert not d.last_unit().unit.closes_input


def test_a_comment_is_told_at_once_when_nobody_speaks() -> None:
    d = Driver(profile=TELLING)
    effects = d.do(COMMENT)
    assert names(effects) == [
        "ItemAdded", "ItemDone", "ContextAccepted", "ResponseStarted", "SubmitUnit",
    ]  # fmt: skip
    unit = d.last_unit().unit
    assert unit.messages == (PARCEL,)
    assert unit.is_bare
    assert unit.closes_input
    d.speak("It has come.")
    d.voice("It has come.", turn_end=True)
    assert "ResponseFinished" in names(d.voiced())
    assert not d.asked(SubmitUnit, d.do(Ticked()))


def test_comments_over_an_answer_wait_until_it_has_been_heard() -> None:
    config = replace(AUTO, playback_commit_policy=PlaybackCommitPolicy.REAL_TIME)
    d = Driver(config, profile=TELLING)
    speaking(d, "one two")
    assert names(d.do(COMMENT)) == ["ItemAdded", "ItemDone", "ContextAccepted"]
    assert names(d.do(replace(COMMENT, text="And a letter."))) == [
        "ItemAdded", "ItemDone", "ContextAccepted",
    ]  # fmt: skip
    assert "ResponseFinished" in names(d.voiced())
    assert d.asked(WakeAt)[-1].at_s == d.now + 1.0
    d.now += 1.0
    assert names(d.do(Ticked())) == ["ResponseStarted", "SubmitUnit"]
    told = d.last_unit().unit.messages
    assert [message.text for message in told] == ["The parcel has come.", "And a letter."]
    d.speak("Both have come.")
    d.voiced()
    d.now += 5.0
    assert not d.asked(SubmitUnit, d.do(Ticked()))


def test_a_comment_waits_while_the_user_speaks() -> None:
    d = Driver(AUTO_VAD, profile=TELLING)
    d.append(400, probability=0.99)
    assert "ResponseStarted" not in names(d.do(COMMENT))
    d.now += 60.0
    assert "ResponseStarted" not in names(d.do(Ticked()))
    d.append(640, probability=0.0)
    assert d.asked(SubmitUnit)
    assert "ResponseStarted" not in names(d.do(Ticked()))  # the model may answer the user
    d.listen()
    assert "ResponseStarted" in names(d.do(Ticked()))


def test_a_closing_session_makes_no_comment() -> None:
    d = Driver(profile=TELLING)
    speaking(d, "one two")
    d.do(COMMENT)
    d.do(CloseRequested(drain_s=10.0))
    assert names(d.voiced()) == ["ResponseFinished"]
    d.now += 1.0
    assert names(d.do(Ticked())) == ["CloseStages"]


def test_a_model_that_takes_no_messages_is_told_nothing() -> None:
    d = Driver()
    [error] = d.said(ErrorRaised, d.do(COMMENT))
    assert (error.error.wire_code, error.event_id) == ("context_append_unsupported", "c1")


def test_texts_that_wait_are_bounded() -> None:
    limits = SessionLimits(max_pending_input_bytes_per_session=30)
    d = Driver(profile=TELLING, limits=limits)
    thought = replace(COMMENT, use=ContextUse.THINKING)
    d.do(thought)
    [error] = d.said(ErrorRaised, d.do(thought))
    assert error.error.wire_code == "input_backpressure"


def test_what_was_said_before_the_session_is_told_with_the_first_input() -> None:
    before = (ContextMessage("user", "Hello."), ContextMessage("assistant", "Hi."))
    d = Driver(replace(AUTO, opening_messages=before), profile=TELLING)
    assert [event.item.text for event in d.said(ItemAdded)] == ["Hello.", "Hi."]
    d.append(1000)
    assert d.last_unit().unit.messages == before
    d.listen()
    d.append(1000)
    assert d.last_unit().unit.messages == ()


@pytest.mark.parametrize("is_muted", [True, False])
def test_a_mute_is_answered_and_changes_nothing(is_muted: bool) -> None:
    d = Driver()
    effects = d.do(InputMuteSet(is_muted, "m"))
    assert d.events(effects) == [InputMuteChanged(is_muted, "m")]
    assert not d.asked(SubmitUnit)


def test_each_mute_is_acknowledged_also_one_that_changes_nothing() -> None:
    d = Driver()
    answers = [d.events(d.do(InputMuteSet(is_muted=True, event_id=each))) for each in ("a", "b")]
    assert answers == [[InputMuteChanged(True, "a")], [InputMuteChanged(True, "b")]]
