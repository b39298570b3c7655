"""The commit-to-response contract, row by row, and who a committed item belongs to."""

from dataclasses import replace

import pytest

from session.config import (
    ResponseOptions,
    SessionLimits,
    TurnDetection,
)
from session.effects import CancelStages, Effect, SubmitUnit
from session.errors import StageFailed
from session.events import (
    ErrorRaised,
    InputBufferCleared,
    InputItemCommitted,
    ListenDecided,
    OutputBufferCleared,
    ResponseFinished,
    ResponseStarted,
    UserSpeechStarted,
    UserSpeechStopped,
)
from session.ids import ItemId
from session.item_events import (
    InputTranscribed,
    ItemAdded,
)
from session.ledger.input import InputLedger
from session.ledger.spans import Turn
from session.stimuli import (
    AudioAppended,
    BargedIn,
    CloseRequested,
    InputCancelled,
    InputCleared,
    InputCommitted,
    ItemCreated,
    ResponseRequested,
    TextAppended,
    UnitFailed,
)
from session.tools import ToolOutput
from tests.session.driver import (
    AUTO,
    AUTO_VAD,
    PROFILE,
    TURN_MODE,
    UNIT_BYTES,
    Driver,
    names,
    speaking,
)
from tests.session.scored import scored, windows

CREATE = ResponseRequested(ResponseOptions())
COMMIT = InputCommitted()
TURN_VAD = replace(TURN_MODE, turn_detection=TurnDetection())
DEAF_VAD = replace(
    TURN_MODE, turn_detection=TurnDetection(interrupt_response=False, prefix_padding_ms=0)
)


def ledger(d: Driver) -> InputLedger:
    return d.session._state.input  # noqa: SLF001  # where the bytes are is not told to anybody


def committed(d: Driver, effects: list[Effect] | None = None) -> InputItemCommitted:
    return d.said(InputItemCommitted, effects)[-1]


def codes(d: Driver, effects: list[Effect]) -> list[str]:
    return [event.error.wire_code for event in d.said(ErrorRaised, effects)]


def turn_answer(config: object = TURN_MODE, limits: SessionLimits | None = None) -> Driver:
    """Bring a session without auto-response to the middle of a spoken answer."""
    d = Driver(config, limits=limits)  # type: ignore[arg-type]
    d.do(ItemCreated("user", "tell me"))
    d.do(CREATE)
    d.speak("a long answer")
    d.voice("a long ")
    return d


def end(d: Driver) -> list[Effect]:
    d.voice("answer")
    return d.voiced()


# --- rows --------------------------------------------------------------------------------------


def test_idle_input_without_auto_response_is_kept_until_an_answer_is_asked_for() -> None:
    d = Driver(TURN_MODE)
    d.append(1000, speech=True)
    assert names(d.do(COMMIT)) == ["ItemAdded", "InputItemCommitted", "ItemDone"]
    assert committed(d).expects_no_response
    assert names(d.do(CREATE)) == ["ResponseStarted", "SubmitUnit"]


def test_idle_speech_with_auto_response_is_committed_before_the_model_says_anything() -> None:
    d = Driver(AUTO)
    d.append(1300, speech=True)
    d.listen()
    effects = d.do(COMMIT)
    assert names(effects) == ["ItemAdded", "InputItemCommitted", "ItemDone", "SubmitUnit"]
    assert not committed(d).expects_no_response
    assert d.said(ResponseStarted) == []
    effects = d.listen()
    assert names(effects) == ["ListenDecided"]


def test_audio_that_has_streamed_to_the_model_can_still_be_committed() -> None:
    d = Driver(AUTO)
    d.append(1000, speech=True)
    d.listen()
    assert ledger(d).pending_bytes == 0
    effects = d.do(COMMIT)
    assert codes(d, effects) == []
    assert committed(d, effects).item_id == d.said(ItemAdded, effects)[0].item.item_id


@pytest.mark.parametrize("config", [AUTO, TURN_MODE])
def test_short_overlap_is_an_acknowledgement(config: object) -> None:
    d = turn_answer(config)
    d.append(700, speech=True)
    d.do(COMMIT)
    fact = committed(d)
    assert (fact.is_overlap_ack, fact.expects_no_response, fact.is_deferred) == (True, True, False)
    end(d)
    assert len(d.said(ResponseStarted)) == 1
    assert ledger(d).pending_bytes == 0


def test_silence_around_a_short_word_does_not_make_it_long() -> None:
    d = turn_answer(DEAF_VAD)
    scored(d, (20, 0.0), (10, 0.98), (40, 0.0))
    assert committed(d).is_overlap_ack


def test_meaningful_overlap_waits_in_one_piece_for_the_end_of_the_answer() -> None:
    d = turn_answer()
    d.append(800, speech=True)
    d.do(COMMIT)
    d.do(TextAppended("and this"))
    d.append(900, speech=True)
    d.do(COMMIT)
    assert [event.is_deferred for event in d.said(InputItemCommitted)] == [True, True]
    assert ledger(d).pending_turns == 1
    units = len(d.asked(SubmitUnit))
    end(d)
    assert len(d.asked(SubmitUnit)) == units + 1
    unit = d.last_unit().unit
    assert (unit.text, len(unit.pcm)) == ("and this", 2 * UNIT_BYTES)
    d.speak("again")
    d.voice("again")
    first, second = d.said(ResponseStarted)
    assert first.response_id != second.response_id


@pytest.mark.parametrize("config", [AUTO, TURN_MODE])
def test_declared_silence_goes_to_no_model(config: object) -> None:
    d = Driver(config)  # type: ignore[arg-type]
    d.append(500, speech=True)
    effects = d.do(InputCommitted(is_speech=False))
    assert names(effects) == ["InputItemCommitted", "ListenDecided"]
    fact, listen = committed(d), d.said(ListenDecided)[0]
    assert (fact.is_speech, fact.expects_no_response, fact.is_empty) == (False, True, False)
    assert (listen.reason, listen.is_model_listen) == ("silence_or_noise", False)
    assert ledger(d).pending_bytes == 0
    assert d.asked(SubmitUnit) == []


def test_silence_declared_over_nothing_says_that_it_was_empty() -> None:
    d = Driver()
    effects = d.do(InputCommitted(is_speech=False))
    assert committed(d, effects).is_empty


@pytest.mark.parametrize("config", [AUTO, TURN_MODE])
def test_input_in_which_nobody_heard_speech_is_a_silent_commit(config: object) -> None:
    d = Driver(config)  # type: ignore[arg-type]
    d.append(500, speech=False)
    effects = d.do(COMMIT)
    assert names(effects) == ["InputItemCommitted", "ListenDecided"]
    assert not committed(d).is_speech


def test_a_detector_that_heard_nothing_makes_a_commit_silent() -> None:
    d = Driver(TURN_VAD)
    d.append(500, probability=0.1)
    assert names(d.do(COMMIT)) == ["InputItemCommitted", "ListenDecided"]


@pytest.mark.parametrize("speech", [None, True])
def test_without_an_opinion_against_it_input_counts_as_speech(speech: bool | None) -> None:
    d = Driver(TURN_MODE)
    d.append(500, speech=False)
    d.append(200, speech=speech)
    assert names(d.do(COMMIT)) == ["ItemAdded", "InputItemCommitted", "ItemDone"]


def test_the_client_s_opinion_holds_against_a_deaf_detector() -> None:
    d = Driver(TURN_VAD)
    d.append(500, speech=True, probability=0.1)
    d.append(500, probability=0.1)
    assert names(d.do(COMMIT)) == ["ItemAdded", "InputItemCommitted", "ItemDone"]
    d.do(CREATE)
    assert len(d.last_unit().unit.pcm) == UNIT_BYTES


def test_no_text_is_no_item() -> None:
    d = Driver(TURN_MODE)
    assert codes(d, d.do(TextAppended(""))) == ["bad_event"]
    assert codes(d, d.do(COMMIT)) == ["input_audio_buffer_empty"]


def test_text_over_silence_is_an_item() -> None:
    d = Driver(TURN_MODE)
    d.append(500, speech=False)
    d.do(TextAppended("hello"))
    assert names(d.do(COMMIT)) == ["ItemAdded", "InputItemCommitted", "ItemDone"]


@pytest.mark.parametrize("config", [AUTO, TURN_MODE])
def test_nothing_to_commit_is_one_error(config: object) -> None:
    d = Driver(config)  # type: ignore[arg-type]
    effects = d.do(COMMIT)
    assert names(effects) == ["ErrorRaised"]
    assert codes(d, effects) == ["input_audio_buffer_empty"]


def test_a_commit_after_audio_that_failed_is_aborted() -> None:
    d = Driver(AUTO)
    d.append(1200, speech=True)
    unit = d.last_unit()
    d.do(UnitFailed(unit.fence, unit.seq, StageFailed("NaN")))
    effects = d.do(COMMIT)
    assert codes(d, effects) == ["commit_aborted"]
    assert d.said(ErrorRaised, effects)[0].error.wire_type == "server_error"
    assert ledger(d).pending_bytes == 0
    assert codes(d, d.do(COMMIT)) == ["input_audio_buffer_empty"]


def test_audio_after_a_failure_begins_a_new_chain() -> None:
    d = Driver(AUTO)
    d.append(1000, speech=True)
    unit = d.last_unit()
    d.do(UnitFailed(unit.fence, unit.seq, StageFailed("NaN")))
    d.append(300, speech=True)
    assert codes(d, d.do(COMMIT)) == []
    assert committed(d).is_speech


def test_a_listen_without_an_answer_does_not_defer_the_next_commit() -> None:
    d = Driver(AUTO)
    d.append(1200, speech=True)
    d.do(COMMIT)
    d.listen()
    d.listen()
    d.append(1200, speech=True)
    effects = d.do(COMMIT)
    assert not committed(d, effects).is_deferred
    d.listen()
    assert d.last_unit().unit.closes_input


def test_three_inputs_leave_no_residue() -> None:
    d = Driver(AUTO)
    for _ in range(3):
        d.append(1200, speech=True)
        d.do(COMMIT)
        while d.session._state.append.is_busy:  # noqa: SLF001  # the stage answers all it gets
            d.listen()
        assert ledger(d).pending_bytes == 0
    assert ledger(d).accepted_bytes == 3 * 1200 * 32


@pytest.mark.parametrize("ms", [500, 1500])
def test_an_answer_that_is_only_played_defers_nothing(ms: int) -> None:
    d = turn_answer()
    end(d)
    assert d.session._state.answer_in_progress(d.now)  # noqa: SLF001  # the client still plays
    d.append(ms, speech=True)
    d.do(COMMIT)
    assert (committed(d).is_deferred, committed(d).is_overlap_ack) == (False, False)
    assert names(d.do(CREATE)) == ["ResponseStarted", "SubmitUnit"]


def test_after_an_interruption_the_idle_row_holds() -> None:
    d = turn_answer()
    d.do(BargedIn())
    d.append(500, speech=True)
    d.do(COMMIT)
    assert not committed(d).is_overlap_ack
    d.do(CREATE)
    d.speak("new")
    d.voice("new")
    first, second = d.said(ResponseStarted)
    assert first.response_id != second.response_id
    assert d.said(ResponseFinished)[0].response_id == first.response_id


# --- backpressure ------------------------------------------------------------------------------


def test_a_refused_commit_changes_nothing() -> None:
    d = Driver(TURN_MODE, limits=SessionLimits(max_pending_turns_per_session=1))
    d.append(500, speech=True)
    d.do(COMMIT)
    d.append(400, speech=True)
    assert codes(d, d.do(COMMIT)) == ["input_backpressure"]
    assert ledger(d).open_bytes == 400 * 32
    d.do(CREATE)
    d.listen(turn_end=True)
    assert codes(d, d.do(COMMIT)) == []
    assert d.said(InputItemCommitted)[-1].turn == d.session.fence.turn


def test_deferred_overlap_counts_as_a_turn_and_what_joins_it_does_not() -> None:
    d = turn_answer(limits=SessionLimits(max_pending_turns_per_session=1))
    for _ in range(2):
        d.append(800, speech=True)
        assert codes(d, d.do(COMMIT)) == []
    assert ledger(d).pending_turns == 1
    assert codes(d, d.do(ItemCreated("user", "more"))) == []
    assert ledger(d).pending_turns == 1


def test_turns_of_the_detector_count_too() -> None:
    silent = replace(TURN_MODE, turn_detection=TurnDetection(create_response=False))
    d = Driver(silent, limits=SessionLimits(max_pending_turns_per_session=1))
    scored(d, (10, 0.98), (30, 0.0))
    effects = scored(d, (10, 0.98), (30, 0.0))
    assert codes(d, effects) == ["input_backpressure"]
    assert len(d.said(InputItemCommitted)) == 1
    assert ledger(d).discarded["too_many_turns"] > 0
    assert len(d.said(UserSpeechStarted)) == len(d.said(UserSpeechStopped)) == 2


def test_a_refused_append_keeps_the_place_of_what_follows() -> None:
    d = Driver(TURN_VAD, limits=SessionLimits(max_pending_input_bytes_per_session=3 * UNIT_BYTES))
    scored(d, (20, 0.0))
    assert codes(d, scored(d, (100, 0.98))) == ["input_backpressure"]
    scored(d, (20, 0.0), (10, 0.98), (40, 0.0))
    # Windows 140 to 149 are speech; 300 ms before them are kept, and 500 ms after.
    heard = set(windows(d.last_unit()))
    assert heard <= set(range(130, 166))
    assert set(range(131, 165)) <= heard


def test_a_refused_append_does_not_make_one_window_long() -> None:
    d = Driver(TURN_VAD, limits=SessionLimits(max_pending_input_bytes_per_session=UNIT_BYTES))
    scored(d, (1, 0.0))
    assert codes(d, scored(d, (100, 0.98))) == ["input_backpressure"]
    scored(d, (2, 0.98))
    assert d.said(UserSpeechStarted) == []


# --- the model turn of an item -----------------------------------------------------------------


def test_an_item_over_an_answer_belongs_to_the_turn_after_it() -> None:
    d = Driver(AUTO)
    d.append(1000, speech=True)
    d.speak("one two", turn_end=False)
    d.voice("one ")
    turn = d.session.fence.turn
    d.do(COMMIT)
    d.append(1000, speech=True)  # the first chunk of the next item reserves
    d.listen(turn_end=True)  # the model's turn is over
    d.voiced()
    d.append(1000, speech=True)
    d.listen(turn_end=True)  # and another one
    assert d.session.fence.turn == turn + 2
    d.do(COMMIT)
    assert committed(d).turn == turn + 1


def test_over_an_answer_whose_turn_is_over_the_turn_has_risen_already() -> None:
    d = turn_answer()
    assert d.session._state.response.active is not None  # noqa: SLF001
    d.append(1000, speech=True)
    d.do(COMMIT)
    assert committed(d).turn == d.session.fence.turn


@pytest.mark.parametrize("release", [InputCleared(), InputCancelled()])
def test_a_reservation_is_forgotten_with_its_item(release: InputCleared | InputCancelled) -> None:
    d = Driver(AUTO)
    d.append(1000, speech=True)
    d.speak("one two", turn_end=False)
    d.voice("one ")
    d.do(COMMIT)
    d.append(500, speech=True)
    assert ledger(d).open_item.target is not None
    d.do(release)
    assert ledger(d).open_item.target is None


def test_an_interruption_makes_a_reservation_void() -> None:
    d = turn_answer()
    d.append(1000, speech=True)
    d.do(BargedIn())
    d.do(COMMIT)
    assert committed(d).turn == d.session.fence.turn
    d.do(CloseRequested())
    assert ledger(d).open_item.target is None


def test_an_item_that_began_before_the_answer_reserves_nothing() -> None:
    d = Driver(TURN_MODE)
    d.do(ItemCreated("user", "tell me"))
    d.append(300, speech=True)
    d.do(CREATE)
    d.append(700, speech=True)
    assert ledger(d).open_item.target is None


def test_an_onset_over_an_answer_begins_an_item_in_a_long_stream() -> None:
    d = Driver(replace(AUTO, turn_detection=DEAF_VAD.turn_detection))
    d.append(1000, probability=0.0)
    d.speak("one two", turn_end=False)
    d.voice("one ")
    turn = d.session.fence.turn
    d.append(500, probability=0.98)
    d.append(500, probability=0.98)
    d.listen(turn_end=True)
    d.voiced()
    d.append(1000, probability=0.98)
    d.listen(turn_end=True)
    d.do(COMMIT)
    assert (committed(d).turn, d.session.fence.turn) == (turn + 1, turn + 2)


# --- clear and cancel --------------------------------------------------------------------------


def test_clear_drops_the_open_item_and_nothing_else() -> None:
    d = turn_answer()
    d.append(800, speech=True)
    d.do(COMMIT)
    d.append(500, speech=True)
    assert names(d.do(InputCleared())) == ["InputBufferCleared"]
    assert ledger(d).discarded["cleared"] == 500 * 32
    end(d)
    assert len(d.last_unit().unit.pcm) == UNIT_BYTES


def test_cancel_drops_turns_and_deferred_overlap() -> None:
    d = turn_answer()
    d.append(800, speech=True)
    d.do(COMMIT)
    d.append(500, speech=True)
    units = len(d.asked(SubmitUnit))
    effects = d.do(InputCancelled())
    assert names(effects) == ["InputBufferCleared"]
    assert ledger(d).pending_bytes == ledger(d).pending_turns == 0
    # What was made of input that the model has heard goes on; the client can cancel that too.
    end(d)
    assert d.said(ResponseFinished)[0].status == "completed"
    assert len(d.asked(SubmitUnit)) == units


def test_cancel_ends_an_answer_of_which_nothing_was_said() -> None:
    d = Driver(TURN_MODE)
    d.append(1000, speech=True)
    d.do(InputCommitted(create_response=True))
    before = d.session.fence
    effects = d.do(InputCancelled())
    assert names(effects) == ["ResponseFinished", "CancelStages", "InputBufferCleared"]
    done = d.said(ResponseFinished)[0]
    assert (done.status, done.reason) == ("cancelled", "input_cancelled")
    assert d.session.fence == before.next_epoch()
    assert ledger(d).discarded["cancelled"] == UNIT_BYTES
    assert codes(d, d.do(CREATE)) == ["response_create_without_input"]


def test_cancel_takes_back_a_unit_that_is_out() -> None:
    d = Driver(AUTO)
    d.append(1500, speech=True)
    effects = d.do(InputCancelled())
    assert names(effects) == ["CancelStages", "InputBufferCleared"]
    assert ledger(d).discarded["cancelled"] == 1500 * 32
    assert d.said(OutputBufferCleared) == []
    d.append(1000, speech=True)
    assert len(d.asked(CancelStages)) == 1
    assert d.last_unit().fence == d.session.fence


def test_cancel_with_nothing_at_work_needs_no_new_epoch() -> None:
    d = Driver(TURN_MODE)
    d.append(1000, speech=True)
    d.do(COMMIT)
    before = d.session.fence
    assert names(d.do(InputCancelled())) == ["InputBufferCleared"]
    assert d.session.fence == before


def test_what_functions_returned_is_not_cancelled() -> None:
    held = InputLedger()
    held.queue.add(Turn((), "hello", ItemId("i"), is_wanted=False))
    output = ToolOutput("call", "42")
    held.queue.add(Turn((), "", ItemId("j"), is_wanted=False, tool_outputs=(output,)))
    held.discard_waiting("cancelled")
    held.queue.want()
    turn = held.reserve_turns().turn
    assert turn is not None
    assert (turn.text, [output.output for output in turn.tool_outputs]) == ("", ["42"])


@pytest.mark.parametrize("is_out", [True, False])
def test_words_of_cancelled_speech_go_to_nobody(is_out: bool) -> None:
    d = Driver(AUTO_VAD, profile=replace(PROFILE, accepts_short_units=is_out))
    d.append(300, probability=0.98)
    d.append(600, probability=0.0)
    assert d.session._state.append.is_busy is is_out  # noqa: SLF001
    d.do(InputCancelled())
    d.append(1000, probability=0.98)
    d.listen(heard="two")
    assert d.said(InputTranscribed)[0].item_id == d.said(UserSpeechStarted)[1].item_id


def test_a_cancelled_utterance_hurries_nothing() -> None:
    d = Driver(AUTO_VAD, profile=replace(PROFILE, accepts_short_units=True))
    d.append(1000, probability=0.98)  # is out
    d.speak("well ", turn_end=False)
    d.voice("well ")
    d.append(1000, probability=0.98)  # is out, over the answer
    d.append(700, probability=0.0)  # the utterance ends
    d.do(InputCancelled())
    d.append(100, probability=0.0)
    d.listen()
    assert d.asked(SubmitUnit)[-1].unit.pcm == bytes(UNIT_BYTES)


@pytest.mark.parametrize("command", [InputCleared(), InputCancelled()])
def test_both_end_speech_that_is_open(command: InputCleared | InputCancelled) -> None:
    d = Driver(TURN_VAD)
    d.append(500, probability=0.98)
    effects = d.do(command)
    assert names(effects) == ["UserSpeechStopped", "InputBufferCleared"]
    assert d.said(InputBufferCleared) != []


def test_audio_of_a_committed_item_that_comes_back_goes_before_the_rest_of_it() -> None:
    d = Driver(AUTO)
    speaking(d)
    first, rest = bytes([1, 0]) * 16_000, bytes([2, 0]) * 12_800
    d.do(AudioAppended(first + rest, is_speech=True))  # a unit of it is out
    d.do(COMMIT)
    assert committed(d).is_deferred
    d.do(BargedIn())
    assert d.last_unit().unit.pcm[: len(first + rest)] == first + rest
    d.listen()
    assert ledger(d).pending_bytes == 0


def test_audio_of_an_acknowledgement_does_not_come_back() -> None:
    d = Driver(AUTO)
    speaking(d)
    d.do(AudioAppended(bytes(UNIT_BYTES), is_speech=False))
    d.append(300, speech=True)
    d.do(COMMIT)
    assert committed(d).is_overlap_ack
    d.do(BargedIn())
    assert ledger(d).pending_bytes == 0
    assert ledger(d).discarded["withdrawn"] == UNIT_BYTES
