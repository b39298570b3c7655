"""A user who says nothing after an answer is asked once more, and not again."""

from dataclasses import replace

import pytest

from session.config import ConfigPatch, OverlapPolicy, ResponseOptions, SessionConfig, TurnDetection
from session.effects import Effect, SubmitUnit, WakeAt
from session.events import (
    InputItemCommitted,
    InputTimedOut,
    ResponseStarted,
    SessionCreated,
)
from session.idle_user import answer_silence
from session.ids import AttachmentId
from session.item_events import (
    ItemAdded,
)
from session.socket_stimuli import ResumeRequested, SocketLost
from session.stimuli import (
    InputCommitted,
    ItemCreated,
    OutputClearRequested,
    PlaybackAcked,
    ResponseRequested,
    SessionConfigured,
    TextAppended,
    Ticked,
)
from tests.session.driver import AUTO, TURN_MODE, Driver, names

WAITS = TurnDetection(idle_timeout_ms=5000)
POLICY = OverlapPolicy.BARGE_IN_ON_SPEECH
AUTO_WAITS = replace(AUTO, turn_detection=WAITS, overlap_policy=POLICY)
TURN_WAITS = replace(TURN_MODE, turn_detection=WAITS, overlap_policy=POLICY)
BOTH = pytest.mark.parametrize("config", [AUTO_WAITS, TURN_WAITS])


def tick(d: Driver, seconds: float) -> list[Effect]:
    d.now += seconds
    return d.do(Ticked())


def timed_out(d: Driver, effects: list[Effect] | None = None) -> list[InputTimedOut]:
    return d.said(InputTimedOut, effects)


def answered(config: SessionConfig, ms: int = 2000, *, is_resumable: bool = False) -> Driver:
    """Bring a session to the end of an answer of which `ms` are still to be played."""
    d = Driver(config, is_resumable=is_resumable)
    d.do(ItemCreated("user", "hello"))
    d.do(ResponseRequested(ResponseOptions()))
    d.speak("good day")
    d.voice("good day", ms)
    d.voiced()
    return d


@BOTH
def test_the_wait_begins_when_the_answer_has_been_played(config: SessionConfig) -> None:
    d = answered(config)
    assert timed_out(d, tick(d, 2.0 + 4.999)) == []
    effects = tick(d, 0.001)
    assert len(timed_out(d, effects)) == 1


def test_a_deadline_is_asked_for() -> None:
    d = answered(AUTO_WAITS)
    assert d.asked(WakeAt)[-1].at_s == pytest.approx(d.now + 7.0)


def test_an_acknowledgement_of_all_of_it_ends_the_playback() -> None:
    d = answered(AUTO_WAITS)
    d.now += 1.0
    d.do(PlaybackAcked(played_ms=2000))
    assert len(timed_out(d, tick(d, 4.0))) == 1


def test_an_answer_that_comes_slowly_is_played_as_it_comes() -> None:
    d = Driver(AUTO_WAITS)
    d.append(1000, probability=0.0)
    d.speak("one two three")
    for word in ("one ", "two ", "three"):
        d.voice(word, 1000)
        d.now += 1.0
    d.voiced()
    assert timed_out(d, tick(d, 4.999)) == []
    assert len(timed_out(d, tick(d, 0.001))) == 1


def test_in_turn_mode_the_silence_is_committed_and_an_answer_begins() -> None:
    d = answered(TURN_WAITS)
    effects = tick(d, 7.0)
    assert names(effects) == [
        "InputTimedOut",
        "ItemAdded",
        "InputItemCommitted",
        "ItemDone",
        "ResponseStarted",
        "SubmitUnit",
    ]
    item_id = timed_out(d)[0].item_id
    assert d.said(ItemAdded, effects)[0].item.item_id == item_id
    assert d.said(InputItemCommitted, effects)[0].item_id == item_id
    assert d.last_unit().unit.closes_input


def test_with_auto_response_the_model_is_asked_and_decides() -> None:
    d = answered(AUTO_WAITS)
    effects = tick(d, 7.0)
    assert names(effects) == [
        "InputTimedOut",
        "ItemAdded",
        "InputItemCommitted",
        "ItemDone",
        "SubmitUnit",
    ]
    assert d.last_unit().unit.closes_input
    d.speak("are you there?")
    d.voice("are you there?")
    assert len(d.said(ResponseStarted)) == 2


def test_the_times_are_those_of_the_audio_after_the_answer() -> None:
    d = Driver(AUTO_WAITS)
    d.append(1000, probability=0.0)
    d.speak("good day")
    d.voice("good day", 2000)
    d.voiced()
    fired: list[Effect] = []
    while not timed_out(d, fired):
        d.now += 0.2
        fired = d.append(200, probability=0.0) + d.do(Ticked())
        if d.session._state.append.is_busy and not timed_out(d, fired):  # noqa: SLF001
            d.listen()
    (event,) = timed_out(d, fired)
    assert (event.audio_start_ms, event.audio_end_ms) == (3000, 8000)
    assert d.said(ItemAdded, fired)[0].item.audio_ms == 5000


@BOTH
def test_at_most_once_an_answer(config: SessionConfig) -> None:
    d = answered(config)
    tick(d, 7.0)
    d.listen(turn_end=True)
    tick(d, 60.0)
    assert len(timed_out(d)) == 1
    d = answered(config)
    for _ in range(3):
        tick(d, 7.0)
        d.speak("are you there?")
        d.voice("are you there?", 2000)
        d.voiced()
    assert len(timed_out(d)) == 3


def test_speech_begins_the_wait_anew() -> None:
    d = answered(AUTO_WAITS)
    d.now += 6.0
    d.append(200, probability=0.98)
    d.append(1000, probability=0.0)
    assert timed_out(d, tick(d, 4.9)) == []
    while d.session._state.append.is_busy:  # noqa: SLF001
        d.listen()
    assert len(timed_out(d, tick(d, 0.1))) == 1


def test_silent_audio_does_not() -> None:
    d = answered(TURN_WAITS)
    for _ in range(6):
        d.now += 1.0
        d.append(1000, probability=0.0)
    assert len(timed_out(d, tick(d, 1.0))) == 1


def test_while_the_user_speaks_nothing_is_due() -> None:
    d = answered(TURN_WAITS)
    d.now += 2.0
    d.append(200, probability=0.98)
    assert timed_out(d, tick(d, 60.0)) == []


def test_an_update_begins_the_wait_anew_and_can_end_it() -> None:
    d = answered(AUTO_WAITS)
    d.now += 6.0
    d.do(SessionConfigured(ConfigPatch((("overlap_short_ack_ms", 500),))))
    assert timed_out(d, tick(d, 4.9)) == []
    assert len(timed_out(d, tick(d, 0.1))) == 1
    d = answered(AUTO_WAITS)
    d.do(SessionConfigured(ConfigPatch((("turn_detection", TurnDetection()),))))
    assert timed_out(d, tick(d, 60.0)) == []


def test_cleared_output_has_nothing_left_to_play() -> None:
    d = answered(AUTO_WAITS)
    d.do(OutputClearRequested())
    assert len(timed_out(d, tick(d, 5.0))) == 1


def test_before_the_first_answer_nobody_is_asked() -> None:
    d = Driver(AUTO_WAITS)
    assert timed_out(d, tick(d, 60.0)) == []


def test_input_that_waits_is_no_silence() -> None:
    d = answered(TURN_WAITS)
    d.do(TextAppended("let me think"))
    assert timed_out(d, tick(d, 60.0)) == []
    d.do(InputCommitted())
    assert timed_out(d, tick(d, 60.0)) == []
    assert len(d.asked(SubmitUnit)) == 1


def test_while_nobody_is_attached_nobody_is_asked() -> None:
    d = answered(AUTO_WAITS, is_resumable=True)
    token = d.said(SessionCreated)[0].resume_token
    assert token is not None
    d.do(SocketLost())
    assert timed_out(d, tick(d, 20.0)) == []
    d.do(ResumeRequested(AttachmentId("att_b"), token))
    assert timed_out(d, tick(d, 4.9)) == []
    assert len(timed_out(d, tick(d, 0.1))) == 1


def test_before_its_time_nothing_is_done() -> None:
    d = answered(AUTO_WAITS)
    assert answer_silence(d.session._state, d.now) == []  # noqa: SLF001
