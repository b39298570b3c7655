"""A client that never acknowledges: what it will have played by now counts as heard."""

from dataclasses import replace

import pytest

from session.config import PlaybackCommitPolicy, ResponseOptions, TurnDetection
from session.effects import CancelStages
from session.events import InputTimedOut, ResponseFinished
from session.ids import ItemId
from session.stimuli import (
    InputCommitted,
    ItemCreated,
    ItemTruncated,
    ResponseCancelRequested,
    ResponseRequested,
    Ticked,
)
from tests.session.driver import TURN_MODE, Driver

BY_THE_CLOCK = replace(TURN_MODE, playback_commit_policy=PlaybackCommitPolicy.REAL_TIME)
WORDS = "one two three four"


def spoken(*, turn_end: bool = True, config: object = BY_THE_CLOCK) -> Driver:
    """Ask, and let the model say four words in four seconds, all sent at once."""
    d = Driver(config)  # type: ignore[arg-type]  # a SessionConfig
    d.do(ItemCreated("user", "count"))
    d.do(ResponseRequested(ResponseOptions()))
    d.speak(WORDS, turn_end=turn_end)
    d.voice(WORDS, 4000, turn_end=turn_end)
    if turn_end:
        d.voiced()
    return d


def answer_of(d: Driver) -> str:
    """Return what the history has of the answer."""
    [finished] = d.said(ResponseFinished)
    return d.remembered(ItemId(finished.item.item_id))


def test_what_was_sent_just_now_has_not_been_heard() -> None:
    assert answer_of(spoken()) == ""


@pytest.mark.parametrize(("later_s", "heard"), [(2.1, "one two"), (4.0, WORDS), (60.0, WORDS)])
def test_time_that_passes_makes_it_heard(later_s: float, heard: str) -> None:
    d = spoken()
    d.now += later_s
    d.do(Ticked())
    assert answer_of(d) == heard


def test_a_cancellation_tells_the_model_what_was_heard_by_then() -> None:
    d = spoken(turn_end=False)
    d.now += 3.0
    effects = d.do(ResponseCancelRequested())
    [cancel] = d.asked(CancelStages, effects)
    assert cancel.heard == "one two three"
    assert answer_of(d) == "one two three"
    d.now += 60.0
    d.do(Ticked())
    assert answer_of(d) == "one two three", "what was dropped is not heard later"


def test_a_truncation_says_it_better_than_the_clock() -> None:
    d = spoken()
    d.now += 3.0
    [finished] = d.said(ResponseFinished)
    d.do(ItemTruncated(ItemId(finished.item.item_id), 1000))
    assert answer_of(d) == "one"
    d.now += 60.0
    d.do(Ticked())
    assert answer_of(d) == "one"


def test_the_answer_before_is_heard_on_while_the_next_is_made() -> None:
    d = spoken()
    d.do(ItemCreated("user", "again"))
    d.do(ResponseRequested(ResponseOptions()))
    d.now += 60.0
    d.do(Ticked())
    assert answer_of(d) == WORDS


def test_other_policies_wait_for_the_client() -> None:
    d = spoken(config=TURN_MODE)
    d.now += 60.0
    d.do(Ticked())
    assert answer_of(d) == ""


def test_an_answer_says_how_much_audio_it_answers() -> None:
    d = Driver(TURN_MODE)
    d.append(1500)
    d.do(InputCommitted())
    d.do(ResponseRequested(ResponseOptions()))
    d.speak("yes")
    d.voice("yes", turn_end=True)
    d.voiced()
    assert [finished.input_audio_ms for finished in d.said(ResponseFinished)] == [1500]


def test_an_answer_apart_is_played_and_not_remembered() -> None:
    d = Driver(BY_THE_CLOCK)
    d.do(ItemCreated("user", "count"))
    d.do(ResponseRequested(ResponseOptions(is_out_of_band=True)))
    d.speak(WORDS)
    d.voice(WORDS, 4000, turn_end=True)
    d.voiced()
    d.now += 60.0
    d.do(Ticked())
    [finished] = d.said(ResponseFinished)
    assert d.session._state.history.get(ItemId(finished.item.item_id)) is None  # noqa: SLF001
    assert not d.session._state.playback.pending  # noqa: SLF001


def test_the_user_is_waited_for_from_the_end_of_the_sound() -> None:
    detection = TurnDetection(idle_timeout_ms=5_000)
    d = spoken(config=replace(BY_THE_CLOCK, turn_detection=detection))
    for _ in range(88):  # a microphone that is on, for 8.8 s; the sound lasts 4 s
        d.now += 0.1
        d.append(100, probability=0.0)
    assert d.said(InputTimedOut) == []
    d.now += 0.3
    d.do(Ticked())
    [timed_out] = d.said(InputTimedOut)
    assert timed_out.audio_end_ms - timed_out.audio_start_ms >= 4_700
