"""Options of one answer: refused before it exists, given to the model with it, gone after it."""

from dataclasses import FrozenInstanceError, replace

import pytest

from session.config import (
    ANSWER_SETTINGS,
    NO_TOKEN_LIMIT,
    AnswerSettings,
    AudioEncoding,
    AudioFormat,
    PlaybackCommitPolicy,
    ResponseOptions,
    RuntimeConfig,
)
from session.effects import SubmitUnit, Synthesize
from session.errors import StageFailed
from session.events import (
    ErrorRaised,
    ListenDecided,
    OutputBufferCleared,
    PlaybackAdvanced,
    ResponseFinished,
    ResponseStarted,
    SpeechDelta,
)
from session.ids import ResponseId
from session.item_events import (
    ItemShown,
)
from session.lifecycle import Life
from session.socket_stimuli import ReaderStalled
from session.stimuli import (
    InputCommitted,
    ItemCreated,
    ItemRetrieved,
    OutputClearRequested,
    PlaybackAcked,
    ResponseCancelRequested,
    ResponseRequested,
    SpeechFailed,
    UnitFailed,
    UnitFinished,
)
from session.tools import FREE_CHOICE, Tool, ToolChoice, ToolUse
from session.unit import Decision, UnitResult
from tests.session.driver import AUTO, PROFILE, TURN_MODE, Driver, names

CREATE = ResponseRequested(ResponseOptions())
HONOURS = replace(PROFILE, response_options=frozenset(ANSWER_SETTINGS), tools=True)
SETTINGS = AnswerSettings(
    instructions="be brief", voice="alto", temperature=0.1, max_output_tokens=9, speed=1.5
)
LOOK_UP = Tool("look_up")
EACH = {
    "instructions": "be brief",
    "voice": "alto",
    "temperature": 0.1,
    "max_output_tokens": 9,
    "speed": 1.5,
    "tools": (LOOK_UP,),
    "tool_choice": ToolChoice(ToolUse.REQUIRED),
}


def cut_short(d: Driver) -> ResponseFinished:
    """Give an answer of a second that its limit of tokens ends; return its end."""
    d.do(ItemCreated("user", "count"))
    d.do(CREATE)
    out = d.last_unit()
    result = UnitResult(Decision.SPEAK, text="one two", turn_end=True, is_cut=True)
    d.do(UnitFinished(out.fence, out.seq, result))
    d.voice("one two", 1000, turn_end=True)
    d.voiced()
    return d.said(ResponseFinished)[-1]


def test_an_answer_that_its_limit_ends_is_incomplete_and_all_of_it_counts() -> None:
    d = Driver(TURN_MODE)
    done = cut_short(d)
    assert (done.status, done.reason, done.was_said) == ("incomplete", "max_output_tokens", True)
    assert (done.item.status, done.item.text) == ("incomplete", "one two")
    d.do(PlaybackAcked(1000))
    assert d.remembered(done.item.item_id) == "one two"
    assert not d.said(PlaybackAdvanced)[-1].is_truncated
    shown = d.said(ItemShown, d.do(ItemRetrieved(done.item.item_id)))[0].item
    assert shown.status == "incomplete"
    assert not d.said(OutputBufferCleared)


def test_commit_all_on_done_counts_it_as_heard() -> None:
    policy = PlaybackCommitPolicy.COMMIT_ALL_ON_DONE
    done = cut_short(Driver(replace(TURN_MODE, playback_commit_policy=policy)))
    assert (done.playback.committed_ms, done.is_committed) == (1000, True)


def asking(settings: AnswerSettings = SETTINGS) -> ResponseRequested:
    return ResponseRequested(ResponseOptions(settings=settings), "r1")


def ready(driver: Driver) -> Driver:
    driver.do(ItemCreated("user", "hello"))
    return driver


def codes(driver: Driver) -> list[str]:
    return [each.error.wire_code for each in driver.said(ErrorRaised)]


# --- reaching the model -----------------------------------------------------------------------


def test_the_unit_that_asks_carries_the_options() -> None:
    d = ready(Driver(TURN_MODE, profile=HONOURS))
    d.do(asking())
    assert d.last_unit().unit.options == SETTINGS


def test_an_answer_without_options_carries_none() -> None:
    d = ready(Driver(TURN_MODE, profile=HONOURS))
    d.do(CREATE)
    assert d.last_unit().unit.options is None


def test_silence_that_lets_the_answer_go_on_carries_none() -> None:
    d = ready(Driver(TURN_MODE, profile=HONOURS))
    d.do(asking())
    d.speak("first. ", turn_end=False)
    d.now += 5
    d.voice("first. ")
    d.voiced()
    assert d.last_unit().unit.is_continuation
    assert d.last_unit().unit.options is None


def test_what_the_model_hears_of_its_own_carries_none() -> None:
    d = ready(Driver(AUTO, profile=HONOURS))
    d.do(asking())
    d.append(1000)
    d.speak("first. ", turn_end=False)
    assert d.said(ResponseFinished) == []
    assert [each.unit.options for each in d.asked(SubmitUnit)] == [SETTINGS, None]


def test_options_apply_to_a_copy_of_what_the_stages_were_told() -> None:
    session = RuntimeConfig(instructions="be kind", voice="low", temperature=0.9)
    answer = AnswerSettings(instructions="be brief", speed=1.5).apply_to(session)
    assert answer == RuntimeConfig(instructions="be brief", voice="low", temperature=0.9, speed=1.5)
    assert session.instructions == "be kind"
    limited = RuntimeConfig(max_output_tokens=9)
    assert AnswerSettings(max_output_tokens=NO_TOKEN_LIMIT).apply_to(limited) == RuntimeConfig()
    with pytest.raises(FrozenInstanceError):
        SETTINGS.voice = "bass"  # type: ignore[misc]  # that it can not be done is the point


def test_an_answer_outside_the_conversation_is_none_for_the_model_either() -> None:
    d = ready(Driver(TURN_MODE, profile=HONOURS))
    d.do(ResponseRequested(ResponseOptions(is_out_of_band=True)))
    assert d.last_unit().unit.options == AnswerSettings(is_out_of_band=True)


# --- gone afterwards --------------------------------------------------------------------------


def _done(d: Driver) -> None:
    d.speak("yes")
    d.voice("yes")
    d.voiced()
    assert d.said(ResponseFinished)[-1].status == "completed"


def _listened(d: Driver) -> None:
    d.listen(turn_end=True)
    assert d.said(ListenDecided)


def _cancelled(d: Driver) -> None:
    d.do(ResponseCancelRequested())
    assert d.said(ResponseFinished)[-1].status == "cancelled"


def _failed(d: Driver) -> None:
    unit = d.last_unit()
    d.do(UnitFailed(unit.fence, unit.seq, StageFailed("poison")))
    assert d.said(ResponseFinished)[-1].status == "failed"


@pytest.mark.parametrize("ending", [_done, _listened, _cancelled, _failed])
def test_the_next_answer_has_the_session_s_settings(ending: object) -> None:
    d = ready(Driver(TURN_MODE, profile=HONOURS))
    g711 = AudioFormat(AudioEncoding.G711_ULAW, 8_000)
    options = ResponseOptions(
        output_modalities=("audio",), output_format=g711, settings=SETTINGS, metadata=(("a", "b"),)
    )
    before = d.session.config
    d.do(ResponseRequested(options))
    ending(d)  # type: ignore[operator]  # one of the four above
    ready(d).do(CREATE)
    first, second = d.said(ResponseStarted)
    assert (first.output_format, first.output_modalities) == (g711, ("audio",))
    assert second.output_format == before.output_format
    assert second.output_modalities == before.output_modalities
    assert second.metadata == ()
    assert d.last_unit().unit.options is None
    assert d.session.config == before


def test_a_written_answer_does_not_make_the_next_one_silent() -> None:
    d = ready(Driver(TURN_MODE))
    d.do(ResponseRequested(ResponseOptions(output_modalities=("text",))))
    d.speak("written")
    assert d.asked(Synthesize) == []
    ready(d).do(CREATE)
    d.speak("spoken")
    assert len(d.asked(Synthesize)) == 1


# --- refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ANSWER_SETTINGS)
def test_each_option_is_refused_only_where_the_model_lacks_it(name: str) -> None:
    settings = AnswerSettings(**{name: EACH[name]})  # type: ignore[arg-type]  # of that field's type
    others = replace(HONOURS, response_options=HONOURS.response_options - {name})
    d = ready(Driver(TURN_MODE, profile=others))
    effects = d.do(asking(settings))
    assert names(effects) == ["ErrorRaised"]
    refusal = d.said(ErrorRaised)[0]
    assert refusal.error.wire_code == "unsupported_native_response_options"
    assert (refusal.error.param, refusal.event_id) == (f"response.{name}", "r1")
    has_it = ready(Driver(TURN_MODE, profile=HONOURS))
    has_it.do(asking(settings))
    assert codes(has_it) == []
    assert len(has_it.said(ResponseStarted)) == 1


@pytest.mark.parametrize(
    "settings",
    [
        AnswerSettings(tools=()),
        AnswerSettings(max_output_tokens=NO_TOKEN_LIMIT),
        AnswerSettings(tool_choice=FREE_CHOICE),
        AnswerSettings(tool_choice=ToolChoice(ToolUse.NONE)),
    ],
)
def test_what_every_model_does_is_no_option_that_one_could_lack(
    settings: AnswerSettings,
) -> None:
    d = ready(Driver(TURN_MODE))
    d.do(asking(settings))
    assert codes(d) == []


def test_a_refused_request_leaves_its_input_to_the_next_one() -> None:
    d = ready(Driver(TURN_MODE))
    d.do(asking())
    assert d.asked(SubmitUnit) == []
    d.do(CREATE)
    assert d.last_unit().unit.text == "hello"


def test_an_answer_that_is_being_made_comes_before_what_the_model_lacks() -> None:
    d = ready(Driver(TURN_MODE))
    d.do(CREATE)
    d.do(asking())
    assert codes(d) == ["response_already_active"]


def test_nothing_to_answer_and_no_text_input() -> None:
    d = Driver(TURN_MODE, profile=replace(PROFILE, text_input=False))
    d.do(CREATE)
    d.do(ItemCreated("user", "hello"))
    d.do(CREATE)
    assert codes(d) == [
        "response_create_without_input",
        "text_only_turn_unsupported",
        "response_create_without_input",
    ]


@pytest.mark.parametrize(
    "stimulus",
    [
        ResponseCancelRequested(event_id="c1"),
        ResponseCancelRequested(ResponseId("resp_none"), "c1"),
        OutputClearRequested(event_id="c1"),
        OutputClearRequested(ResponseId("resp_none"), "c1"),
    ],
)
def test_nothing_can_be_cancelled_or_cleared(
    stimulus: ResponseCancelRequested | OutputClearRequested,
) -> None:
    d = Driver()
    d.do(stimulus)
    (refusal,) = d.said(ErrorRaised)
    assert (refusal.error.wire_code, refusal.event_id) == ("response_not_active", "c1")


def test_another_answer_than_the_active_one_is_not_cancelled() -> None:
    d = ready(Driver(TURN_MODE))
    d.do(CREATE)
    d.do(ResponseCancelRequested(ResponseId("resp_none")))
    assert codes(d) == ["response_not_active"]
    assert d.said(ResponseFinished) == []


def test_an_answer_that_is_over_but_still_plays_can_be_cleared() -> None:
    d = ready(Driver(TURN_MODE))
    d.do(CREATE)
    _done(d)
    d.do(OutputClearRequested())
    assert len(d.said(OutputBufferCleared)) == 1
    assert len(d.said(ResponseFinished)) == 1


# --- outside the conversation -----------------------------------------------------------------


def out_of_band() -> Driver:
    d = ready(Driver(TURN_MODE))
    d.do(ResponseRequested(ResponseOptions(is_out_of_band=True)))
    d.speak("one two")
    d.voice("one two", 1000, turn_end=True)
    return d


def test_an_answer_outside_the_conversation_can_be_acknowledged_and_is_not_kept() -> None:
    d = out_of_band()
    d.voiced()
    started = d.said(ResponseStarted)[0]
    assert started.previous_item_id is None
    d.do(PlaybackAcked(played_ms=1000, response_id=started.response_id))
    assert codes(d) == []
    assert not d.said(ResponseFinished)[0].is_committed
    d.do(ItemCreated("user", "and now", item_id=None))
    d.do(CREATE)
    history = d.said(ResponseStarted)[1].previous_item_id
    assert history != started.item_id


@pytest.mark.parametrize("reason", ["cancelled", "failed"])
def test_nor_is_one_that_ends_early(reason: str) -> None:
    d = out_of_band()
    d.do(PlaybackAcked(played_ms=600))
    if reason == "cancelled":
        d.do(ResponseCancelRequested())
    else:
        job = d.last_speech()
        d.do(SpeechFailed(job.fence, job.seq, StageFailed("vocoder")))
    done = d.said(ResponseFinished)[0]
    assert (done.status, done.item.text, done.is_committed) == (reason, "one", False)


# --- a client that does not read --------------------------------------------------------------


def test_a_stalled_reader_fails_its_answer() -> None:
    d = ready(Driver(TURN_MODE))
    d.do(CREATE)
    d.speak("one two")
    d.voice("one ")
    effects = d.do(ReaderStalled())
    (done,) = d.said(ResponseFinished, effects)
    assert (done.status, done.reason) == ("failed", "slow_reader")
    assert d.said(SpeechDelta)


def test_a_stalled_reader_without_an_answer_just_ends() -> None:
    d = Driver()
    d.do(ReaderStalled())
    assert d.said(ResponseFinished) == []
    assert d.session.life is Life.CLOSING


def test_a_commit_that_asks_has_no_options() -> None:
    d = Driver(TURN_MODE, profile=HONOURS)
    d.append(1000, speech=True)
    d.do(InputCommitted(create_response=True))
    assert d.last_unit().unit.options is None
