"""What a session does, told as stories with stages that answer when told to."""

from dataclasses import replace

import pytest

from session.config import (
    ResponseOptions,
    SessionLimits,
    TurnDetection,
)
from session.effects import (
    CancelStages,
    CloseSocket,
    SubmitUnit,
    Synthesize,
    WakeAt,
)
from session.errors import AdmissionRefused, StageFailed, StageUnavailable
from session.events import (
    ErrorRaised,
    ListenDecided,
    OutputBufferCleared,
    OverlapDecided,
    PlaybackAdvanced,
    ResponseFinished,
    ResponseStarted,
    SessionClosed,
    SessionCreated,
    SessionExpired,
    SpeakDecided,
    SpeechDelta,
    UserSpeechStarted,
    UserSpeechStopped,
)
from session.ids import ResponseId
from session.socket_stimuli import ReaderStalled, SocketLost
from session.stimuli import (
    BargedIn,
    CloseRequested,
    OpenFailed,
    OutputClearRequested,
    PlaybackAcked,
    ResponseCancelRequested,
    ResponseRequested,
    SpeechArrived,
    SpeechFailed,
    StageLost,
    StagesOpened,
    Ticked,
    UnitFailed,
    UnitFinished,
)
from session.unit import Decision, SpeechChunk, UnitResult
from tests.session.driver import (
    AUTO,
    AUTO_VAD,
    UNIT_BYTES,
    Driver,
    names,
    speaking,
    transcript,
)

CREATE = ResponseRequested(ResponseOptions())


# --- open and close ----------------------------------------------------------------------------


def test_created_comes_after_the_stages_and_before_everything_else() -> None:
    d = Driver(opened=False)
    assert d.append(1000) == []
    effects = d.do(StagesOpened(d.session.fence))
    assert names(effects) == ["SessionCreated", "SessionUpdated", "SubmitUnit"]


def test_a_refused_session_says_why_and_closes_with_try_again_later() -> None:
    d = Driver(opened=False)
    effects = d.do(OpenFailed(d.session.fence, AdmissionRefused("limit=2")))
    assert names(effects) == ["ErrorRaised", "CloseSocket"]
    assert d.asked(CloseSocket)[0].code == 1013
    assert d.session.is_over


def test_an_abandoned_open_gives_back_what_it_gets() -> None:
    d = Driver(opened=False)
    assert d.do(SocketLost()) == []
    effects = d.do(StagesOpened(d.session.fence))
    assert names(effects) == ["CloseStages"]
    assert not d.session.is_over
    d.released()
    assert d.session.is_over
    assert d.said(SessionCreated) == []


def test_a_close_during_the_open_comes_after_what_was_sent_before_it() -> None:
    d = Driver(opened=False)
    d.do(PlaybackAcked(played_ms=1))
    d.do(CloseRequested())
    effects = d.do(StagesOpened(d.session.fence))
    assert names(effects) == ["SessionCreated", "SessionUpdated", "ErrorRaised", "CloseStages"]


def test_closed_is_said_once_and_only_after_the_release() -> None:
    d = Driver()
    speaking(d)
    effects = d.do(CloseRequested())
    assert names(effects) == ["ResponseFinished", "CloseStages"]
    assert d.do(CloseRequested()) == []
    assert d.append(1000) == []
    assert names(d.released()) == ["SessionClosed", "CloseSocket"]
    assert len(d.said(SessionClosed)) == 1
    assert d.session.is_over


def test_speech_is_paired_also_at_the_end() -> None:
    d = Driver(AUTO_VAD)
    d.append(500, probability=0.98)
    d.do(CloseRequested())
    assert len(d.said(UserSpeechStarted)) == len(d.said(UserSpeechStopped)) == 1


def test_a_lost_stage_fails_the_answer_and_expires_the_session() -> None:
    d = Driver()
    speaking(d)
    effects = d.do(StageLost("stage1", StageUnavailable("gone")))
    assert names(effects) == ["ErrorRaised", "ResponseFinished", "CloseStages"]
    assert d.said(ResponseFinished)[0].status == "failed"
    assert names(d.released()) == ["SessionExpired", "CloseSocket"]
    assert d.said(SessionExpired)[0].reason == "stage1_lost"


def test_a_call_that_fails_with_its_stage_ends_the_session_once() -> None:
    d = Driver()
    d.append(1000)
    unit = d.last_unit()
    gone = StageUnavailable("gone")
    effects = d.do(UnitFailed(unit.fence, unit.seq, gone))
    assert names(effects) == ["ErrorRaised", "CloseStages"]
    assert d.do(StageLost("stage0", gone)) == []
    d.released()
    assert d.said(SessionExpired)[0].reason == "stage0_lost"


def test_a_reader_that_stalls_is_let_go() -> None:
    d = Driver()
    d.do(ReaderStalled())
    d.released()
    assert d.asked(CloseSocket)[0].code == 1013


# --- units ----------------------------------------------------------------------------------------


def test_one_unit_is_out_at_a_time_and_in_order() -> None:
    d = Driver()
    d.append(2500)
    assert [u.seq for u in d.asked(SubmitUnit)] == [1]
    d.listen()
    assert [u.seq for u in d.asked(SubmitUnit)] == [1, 2]
    d.listen()
    assert [len(u.unit.pcm) for u in d.asked(SubmitUnit)] == [UNIT_BYTES, UNIT_BYTES]


def test_an_answer_for_a_unit_that_is_not_out_means_nothing() -> None:
    d = Driver()
    d.append(1000)
    d.listen()
    unit = d.last_unit()
    assert d.do(UnitFinished(unit.fence, unit.seq, UnitResult(Decision.SPEAK, "x"))) == []


def test_listening_makes_no_response() -> None:
    d = Driver()
    d.append(1000)
    d.listen()
    assert len(d.said(ListenDecided)) == 1
    assert d.said(ResponseStarted) == []


def test_a_poisoned_unit_is_not_sent_again() -> None:
    d = Driver()
    d.append(1000)
    unit = d.last_unit()
    effects = d.do(UnitFailed(unit.fence, unit.seq, StageFailed("NaN")))
    assert names(effects) == ["ErrorRaised", "CancelStages"]
    d.append(1000)
    assert d.last_unit().fence == d.session.fence
    assert d.last_unit().seq == 1


def test_too_much_waiting_input_is_refused_and_what_is_there_stays() -> None:
    limits = SessionLimits(max_pending_input_bytes_per_session=3 * UNIT_BYTES)
    d = Driver(limits=limits)
    d.append(3000)
    effects = d.append(1000)
    assert d.said(ErrorRaised, effects)[0].error.wire_code == "input_backpressure"
    d.listen()
    assert d.append(500, speech=False) == []


# --- an answer -----------------------------------------------------------------------------------


def test_the_whole_order_of_a_spoken_answer() -> None:
    d = Driver()
    d.effects.clear()
    d.append(1000)
    d.speak("hello world")
    d.voice("hello ", 500)
    d.voice("world", 500, turn_end=True)
    d.voiced()
    assert names(d.effects) == [
        "SubmitUnit",
        "Synthesize",
        "ResponseStarted",
        "SpeakDecided",
        "SpeechDelta",
        "SpeechDelta",
        "ResponseFinished",
    ]
    done = d.said(ResponseFinished)[0]
    assert (done.status, done.item.text) == ("completed", "hello world")
    assert transcript(d.events()) == "hello world"
    assert done.playback.sent_ms == 1000


def test_nothing_is_visible_before_there_is_output() -> None:
    d = Driver()
    d.append(1000)
    d.speak("hello")
    assert d.said(ResponseStarted) == []
    d.do(ResponseCancelRequested())
    assert d.said(ResponseStarted) == []
    assert d.said(ResponseFinished) == []


def test_sentences_are_spoken_one_after_the_other() -> None:
    d = Driver()
    d.append(2000)
    d.speak("first. ", turn_end=False)
    d.speak("second.", turn_end=True)
    assert len(d.asked(Synthesize)) == 1
    d.voice("first. ")
    d.voiced()
    assert [s.seq for s in d.asked(Synthesize)] == [1, 2]
    d.voice("second.")
    d.voiced()
    assert len(d.said(ResponseFinished)) == len(d.said(SpeakDecided)) == 1
    assert d.said(ResponseFinished)[0].item.text == "first. second."


def test_a_turn_that_ends_without_words_ends_the_answer_after_its_speech() -> None:
    d = Driver()
    d.append(2000)
    d.speak("first.", turn_end=False)
    d.voice("first.")
    d.listen(turn_end=True)
    assert d.said(ResponseFinished) == []
    d.voiced()
    assert d.said(ResponseFinished)[0].status == "completed"


def test_text_only_answers_need_no_stage1() -> None:
    d = Driver(replace(AUTO, output_modalities=("text",)))
    d.append(1000)
    d.speak("hello", turn_end=True)
    assert d.asked(Synthesize) == []
    assert d.said(SpeechDelta)[0].is_text_only
    assert d.said(ResponseFinished)[0].item.text == "hello"


def test_a_turn_end_raises_the_turn_and_keeps_the_epoch() -> None:
    d = Driver()
    before = d.session.fence
    speaking(d)
    assert d.session.fence == before.next_turn()


def test_stage1_failing_fails_the_answer_and_the_session_goes_on() -> None:
    d = Driver()
    speaking(d)
    job = d.last_speech()
    d.do(SpeechFailed(job.fence, job.seq, StageFailed("vocoder")))
    assert d.said(ResponseFinished)[0].status == "failed"
    d.append(1000)
    d.speak("again")
    d.voice("again")
    d.voiced()
    assert [r.status for r in d.said(ResponseFinished)] == ["failed", "completed"]


def test_a_continuation_carries_an_answer_on_when_the_user_is_silent() -> None:
    d = Driver()
    d.append(1000)
    d.speak("first. ", turn_end=False)
    wake = d.asked(WakeAt)[-1]
    assert wake.at_s == pytest.approx(d.now + 2.0)
    assert d.do(Ticked()) != []
    assert len(d.asked(SubmitUnit)) == 1
    d.now = wake.at_s
    d.do(Ticked())
    assert d.last_unit().unit.is_continuation
    d.speak("second.", turn_end=True)
    d.now += 60
    assert names(d.do(Ticked())) == []


def test_real_audio_supersedes_a_continuation() -> None:
    d = Driver()
    d.append(1000)
    d.speak("first. ", turn_end=False)
    d.now += 1.9
    d.append(200)
    d.now += 0.2
    d.do(Ticked())
    assert not d.last_unit().unit.is_continuation


def test_continuations_are_capped() -> None:
    d = Driver(limits=SessionLimits(max_continuations=3))
    d.append(1000)
    d.speak("x", turn_end=False)
    for _ in range(10):
        d.now += 10
        if d.do(Ticked()):
            d.listen()
    d.voice("x")
    d.voiced()
    units = [u.unit for u in d.asked(SubmitUnit) if u.unit.is_continuation]
    assert len(units) == 3
    assert units[-1].force_listen
    assert d.said(ResponseFinished)[0].status == "completed"


# --- interruption ------------------------------------------------------------------------------


def test_onset_of_speech_cancels_and_the_interrupting_words_are_kept() -> None:
    d = Driver(AUTO_VAD)
    speaking(d)
    old = d.session.fence
    effects = d.append(200, probability=0.98)
    assert names(effects) == [
        "UserSpeechStarted",
        "OverlapDecided",
        "ResponseFinished",
        "CancelStages",
    ]
    assert d.said(OverlapDecided)[0].action == "barge_in"
    cancel = d.asked(CancelStages)[0]
    assert (cancel.cancelled, cancel.current) == (old, old.next_epoch())
    d.append(800, probability=0.98)
    assert len(d.last_unit().unit.pcm) == UNIT_BYTES
    assert d.last_unit().seq == 1


def test_a_unit_that_was_out_comes_back_after_an_interruption() -> None:
    d = Driver(AUTO_VAD)
    speaking(d)
    d.append(1000, probability=0.0)
    out = d.last_unit()
    d.append(200, probability=0.98)
    again = d.last_unit()
    assert again.fence == out.fence.next_epoch()
    assert again.unit.pcm == out.unit.pcm
    assert d.do(UnitFinished(out.fence, out.seq, UnitResult(Decision.SPEAK, "late"))) == []


def test_late_speech_of_a_cancelled_answer_changes_nothing() -> None:
    d = Driver()
    speaking(d)
    job = d.last_speech()
    d.do(BargedIn())
    chunk = SpeechChunk(bytes(4800), "late")
    assert d.do(SpeechArrived(job.fence, job.seq, chunk)) == []
    assert d.session.stale == 1


def test_history_holds_only_what_was_heard() -> None:
    d = Driver()
    speaking(d, "one two three four")
    d.do(PlaybackAcked(played_ms=700))
    d.do(BargedIn())
    done = d.said(ResponseFinished)[0]
    assert (done.status, done.item.text) == ("cancelled", "one")
    assert d.asked(CancelStages)[0].heard == "one"
    assert d.remembered(done.item.item_id) == "one"
    # The client tells how far it really got when it flushed; the history follows.
    d.do(PlaybackAcked(played_ms=880, response_id=done.response_id))
    assert d.said(PlaybackAdvanced)[-1].playback.committed_ms == 880
    assert d.remembered(done.item.item_id) == "one two"


def test_speech_over_the_tail_of_a_finished_answer_clears_what_is_unplayed() -> None:
    d = Driver(AUTO_VAD)
    speaking(d)
    d.voiced()
    d.effects.clear()
    d.append(200, probability=0.98)
    assert len(d.said(OutputBufferCleared)) == 1
    assert d.said(ResponseFinished) == []
    assert len(d.asked(CancelStages)) == 1


def test_after_everything_was_heard_speech_is_just_speech() -> None:
    d = Driver(AUTO_VAD)
    speaking(d)
    d.voiced()
    d.do(PlaybackAcked(played_ms=1000))
    d.effects.clear()
    d.append(200, probability=0.98)
    assert names(d.effects) == ["UserSpeechStarted"]


def test_without_interrupt_response_the_assistant_talks_on() -> None:
    config = replace(AUTO_VAD, turn_detection=TurnDetection(interrupt_response=False))
    d = Driver(config)
    speaking(d)
    d.append(500, probability=0.98)
    assert d.asked(CancelStages) == []


def test_cancelling_nothing_is_one_error() -> None:
    d = Driver()
    for command in (ResponseCancelRequested(), BargedIn(), OutputClearRequested()):
        effects = d.do(command)
        assert [e.error.wire_code for e in d.said(ErrorRaised, effects)] == ["response_not_active"]


def test_cancelling_another_answer_is_refused() -> None:
    d = Driver()
    speaking(d)
    d.do(ResponseCancelRequested(ResponseId("resp_other")))
    assert d.said(ResponseFinished) == []


def test_clearing_output_says_cleared_first() -> None:
    d = Driver()
    speaking(d)
    effects = d.do(OutputClearRequested())
    assert names(effects) == ["OutputBufferCleared", "ResponseFinished", "CancelStages"]
    assert d.said(ResponseFinished)[0].reason == "output_audio_buffer_clear"
