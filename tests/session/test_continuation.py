"""Silence that lets an answer go on: for whom, how much, and never in front of what was said."""

from dataclasses import replace

import pytest

from session.config import ResponseOptions, SessionLimits
from session.effects import Effect, SubmitUnit, WakeAt
from session.errors import LocalProtocolError, StageFailed
from session.events import ListenDecided, ResponseFinished
from session.ids import OperationId
from session.ledger.append import AppendLedger
from session.ledger.input import InputLedger
from session.pump import pump
from session.stimuli import (
    AudioAppended,
    BargedIn,
    CloseRequested,
    InputCommitted,
    ItemCreated,
    ResponseRequested,
    SpeechFailed,
    Ticked,
)
from tests.session.driver import AUTO, PROFILE, TURN_MODE, UNIT_BYTES, Driver, speaking

CREATE = ResponseRequested(ResponseOptions())
VOICE = bytes([7, 0])


def tick(d: Driver, seconds: float) -> list[Effect]:
    d.now += seconds
    return d.do(Ticked())


def units(d: Driver, effects: list[Effect]) -> list[SubmitUnit]:
    return d.asked(SubmitUnit, effects)


def unfinished(config: object = AUTO, limits: SessionLimits | None = None) -> Driver:
    """Bring a session to an answer that the model has not ended."""
    d = Driver(config, limits=limits)  # type: ignore[arg-type]
    d.do(ItemCreated("user", "tell me a story"))
    d.do(CREATE)
    d.speak("once ", turn_end=False)
    return d


# --- caps, owners ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "cap"), [(AUTO, SessionLimits().max_continuations), (TURN_MODE, 8)]
)
def test_an_answer_gets_so_much_silence_and_the_last_makes_the_model_listen(
    config: object, cap: int
) -> None:
    assert SessionLimits().max_continuations == 64
    d = unfinished(config)
    fed = []
    for _ in range(cap + 5):
        for unit in units(d, tick(d, 1.0)):
            fed.append(unit.unit)
            d.speak("and then ", turn_end=False)
    assert len(fed) == cap
    assert all(unit.is_continuation for unit in fed)
    assert [unit.force_listen for unit in fed] == [False] * (cap - 1) + [True]


def test_each_answer_has_its_own_count() -> None:
    limits = SessionLimits(max_continuations=3)
    d = unfinished(AUTO, limits)
    for _ in range(3):
        tick(d, 1.0)
        d.listen()
    d.voice("once ")
    d.voiced()
    assert d.said(ResponseFinished)[0].status == "completed"
    d.do(ItemCreated("user", "another"))
    d.do(CREATE)
    d.speak("twice ", turn_end=False)
    assert [u.unit.force_listen for u in units(d, tick(d, 1.0))] == [False]


def test_a_turn_that_has_no_answer_yet_is_capped_too() -> None:
    d = Driver(AUTO, limits=SessionLimits(max_continuations=2))
    state = d.session._state  # noqa: SLF001
    fed = []
    for _ in range(4):
        state.turns_expected = True  # a stage that has said nothing to a turn
        fed += units(d, tick(d, 1.0))
        if state.append.is_busy:
            d.listen()
    assert [unit.unit.force_listen for unit in fed] == [False, True]


def test_the_turn_and_the_answer_that_comes_of_it_are_counted_apart() -> None:
    d = Driver(AUTO, limits=SessionLimits(max_continuations=2))
    state = d.session._state  # noqa: SLF001
    state.turns_expected = True
    assert len(units(d, tick(d, 1.0))) == 1
    d.speak("well ", turn_end=False)
    fed = []
    for _ in range(3):
        fed += units(d, tick(d, 1.0))
        if state.append.is_busy:
            d.speak("er ", turn_end=False)
    assert [unit.unit.force_listen for unit in fed] == [False, True]


def test_silence_that_was_due_is_not_fed_to_a_turn_that_is_over() -> None:
    d = Driver(AUTO)
    state = d.session._state  # noqa: SLF001
    state.turns_expected = True
    d.do(AudioAppended(b""))
    wake = d.asked(WakeAt)[-1]
    d.append(1000)
    d.listen(turn_end=True)
    d.now = wake.at_s + 5
    assert units(d, d.do(Ticked())) == []


@pytest.mark.parametrize("ending", ["interrupt", "fail", "end"])
def test_silence_that_was_due_is_not_fed_to_an_answer_that_is_over(ending: str) -> None:
    d = unfinished()
    d.voice("once ")
    if ending == "interrupt":
        d.do(BargedIn())
    elif ending == "fail":
        job = d.last_speech()
        d.do(SpeechFailed(job.fence, job.seq, StageFailed("vocoder")))
    else:
        d.append(1000)
        d.listen(turn_end=True)
        d.voiced()
    assert units(d, tick(d, 60.0)) == []


def test_the_next_silence_is_due_one_unit_after_the_last_was_submitted() -> None:
    d = unfinished()
    assert units(d, tick(d, 0.999)) == []
    assert len(units(d, tick(d, 0.001))) == 1
    d.now += 0.4
    d.speak("and ", turn_end=False)
    assert units(d, tick(d, 0.599)) == []
    assert len(units(d, tick(d, 0.001))) == 1


# --- real input ----------------------------------------------------------------------------------


def test_no_silence_within_two_units_of_the_last_append() -> None:
    d = unfinished()
    d.append(1000)
    d.speak("and ", turn_end=False)
    assert units(d, tick(d, 1.999)) == []
    (unit,) = units(d, tick(d, 0.001))
    assert unit.unit.is_continuation


def test_what_a_muted_microphone_left_goes_first_with_silence_at_its_tail() -> None:
    d = unfinished()
    rest = VOICE * 4_800
    d.do(AudioAppended(rest, is_speech=True, video_frames=(b"f",)))
    assert units(d, tick(d, 1.999)) == []
    (unit,) = units(d, tick(d, 0.001))
    assert unit.unit.pcm == rest + bytes(UNIT_BYTES - len(rest))
    assert (unit.unit.is_continuation, unit.unit.is_speech) == (False, True)
    assert unit.unit.video_frames == ((b"f",),)
    d.speak("and ", turn_end=False)
    (unit,) = units(d, tick(d, 1.0))
    assert unit.unit.is_continuation
    assert d.session._state.input.accepted_bytes == len(rest)  # noqa: SLF001  # padding is nobody's


@pytest.mark.parametrize("short", [True, False])
def test_a_rest_does_not_wait_for_ever_when_no_answer_goes_on(short: bool) -> None:
    d = Driver(AUTO, profile=replace(PROFILE, accepts_short_units=short))
    d.append(2300, speech=True)
    d.listen()
    d.listen()
    (unit,) = units(d, tick(d, 2.0))
    assert len(unit.unit.pcm) == UNIT_BYTES
    d.listen()
    assert units(d, tick(d, 60.0)) == []
    assert len(d.said(ListenDecided)) == 3


def test_audio_that_comes_in_time_fills_the_unit_itself() -> None:
    d = unfinished()
    d.do(AudioAppended(VOICE * 8_000))
    d.now += 1.9
    d.do(AudioAppended(VOICE * 7_999))
    assert units(d, tick(d, 1.9)) == []
    (unit,) = units(d, d.do(AudioAppended(VOICE)))
    assert unit.unit.pcm == VOICE * 16_000


def test_a_rest_that_comes_back_is_sent_again() -> None:
    d = unfinished()
    d.voice("once ")
    d.do(AudioAppended(VOICE * 4_800))
    (first,) = units(d, tick(d, 2.0))
    (again,) = units(d, d.do(BargedIn()))
    assert (again.unit.pcm, again.fence.epoch) == (first.unit.pcm, first.fence.epoch + 1)


def test_an_open_item_in_turn_mode_does_not_hold_the_answer_up() -> None:
    d = unfinished(TURN_MODE)
    d.append(300, speech=True)
    (unit,) = units(d, tick(d, 1.0))
    assert unit.unit.is_continuation
    d.listen()
    d.do(InputCommitted())
    assert d.session._state.input.open_bytes == 0  # noqa: SLF001


def test_a_live_microphone_needs_no_silence() -> None:
    d = Driver(AUTO)
    speaking(d)
    for _ in range(50):
        d.now += 0.2
        d.append(200)
        d.do(Ticked())
        if d.session._state.append.is_busy:  # noqa: SLF001
            d.listen()
    assert not any(unit.unit.is_continuation for unit in d.asked(SubmitUnit))


def test_nothing_is_submitted_after_the_close() -> None:
    d = Driver(AUTO)
    d.append(500)
    d.do(CloseRequested())
    assert pump(d.session._state, d.now) == []  # noqa: SLF001
    assert units(d, tick(d, 60.0)) == []


def test_a_second_unit_can_not_be_begun() -> None:
    ledger = AppendLedger()
    ledger.begin(OperationId("a"), 0, is_continuation=False, now=0.0)
    with pytest.raises(LocalProtocolError):
        ledger.begin(OperationId("b"), 0, is_continuation=False, now=0.0)


def test_what_was_not_deferred_can_not_be_promoted() -> None:
    with pytest.raises(LocalProtocolError):
        InputLedger().promote_deferred()
