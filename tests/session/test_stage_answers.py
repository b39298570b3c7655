"""What stages answer: out of turn, without effect, or for the last time."""

import pytest

from session.config import ResponseOptions
from session.effects import CancelStages, Synthesize
from session.errors import LocalProtocolError, StageFailed, StageUnavailable
from session.events import (
    ResponseFinished,
    ResponseStarted,
    SpeechDelta,
)
from session.fence import Fence
from session.ids import ItemId, ResponseId, SessionId
from session.item_events import (
    ItemAdded,
)
from session.ledger.playback import PlaybackLedger
from session.ledger.response import Response, ResponseLedger
from session.lifecycle import Life
from session.stimuli import (
    ItemCreated,
    ResponseCancelRequested,
    ResponseRequested,
    SpeechArrived,
    SpeechFailed,
    SpeechFinished,
    UnitFailed,
    UnitFinished,
)
from session.unit import Decision, SegmentMetrics, SpeechChunk, SpeechMetrics, UnitResult
from tests.session.driver import AUTO, TURN_MODE, Driver, speaking

CREATE = ResponseRequested(ResponseOptions())


def test_an_answer_to_a_unit_that_is_not_out_changes_nothing() -> None:
    d = Driver()
    d.append(1000)
    unit = d.last_unit()
    spoken = UnitResult(Decision.SPEAK, "x", turn_end=True)
    assert d.do(UnitFinished(unit.fence, unit.seq + 1, spoken)) == []
    assert d.do(UnitFailed(unit.fence, unit.seq + 1, StageFailed("x"))) == []
    d.listen()
    assert d.do(UnitFinished(unit.fence, unit.seq, spoken)) == []


def test_speech_that_nobody_asked_for_changes_nothing() -> None:
    d = Driver()
    speaking(d)
    job = d.last_speech()
    stray = job.seq + 1
    assert d.do(SpeechArrived(job.fence, stray, SpeechChunk(b"", "x"))) == []
    assert d.do(SpeechFinished(job.fence, stray)) == []
    assert d.do(SpeechFailed(job.fence, stray, StageFailed("x"))) == []
    assert d.do(SpeechArrived(job.fence, job.seq, SpeechChunk(b"", ""))) == []


@pytest.mark.parametrize("stage", ["stage0", "stage1"])
def test_a_stage_that_has_lost_the_session_ends_it(stage: str) -> None:
    d = Driver()
    speaking(d)
    if stage == "stage0":
        d.append(1000)
        unit = d.last_unit()
        d.do(UnitFailed(unit.fence, unit.seq, StageUnavailable("gone")))
    else:
        job = d.last_speech()
        d.do(SpeechFailed(job.fence, job.seq, StageUnavailable("gone")))
    (done,) = d.said(ResponseFinished)
    assert (done.status, done.reason) == ("failed", "stage_lost")
    assert d.session.life is Life.CLOSING


def test_a_model_that_thinks_longer_is_waited_for() -> None:
    d = Driver(TURN_MODE)
    d.do(ItemCreated("user", "hello"))
    d.do(CREATE)
    d.listen()
    assert d.said(ResponseFinished) == []
    d.now += 5
    d.append(0)
    d.listen(turn_end=True)
    assert d.said(ResponseFinished)[0].reason == "model_listen"


def test_words_of_an_utterance_nobody_noticed_are_an_item_of_no_length() -> None:
    d = Driver(AUTO)
    d.append(1000)
    d.listen(heard="hello there")
    (added,) = d.said(ItemAdded)
    assert (added.item.role, added.item.audio_ms) == ("user", 0)


def test_metrics_of_all_units_ride_on_the_answer() -> None:
    d = Driver()
    d.append(1000)
    unit = d.last_unit()
    metrics = SegmentMetrics(30.0, 15.0, (15.0,), 2)
    result = UnitResult(Decision.SPEAK, "one", turn_end=True, metrics=metrics)
    d.do(UnitFinished(unit.fence, unit.seq, result))
    d.voice("one")
    d.voiced()
    assert d.said(SpeechDelta)[0].metrics == (metrics,)
    assert d.said(ResponseFinished)[0].metrics == (metrics,)


def test_a_chunk_tells_its_time_by_what_it_lasts() -> None:
    took = SpeechMetrics(talker_ms=100, flow_ms=50, vocoder_ms=30, waited_ms=20, batch=4)
    assert took.total_ms == 200
    assert SpeechChunk(bytes(48_000), "", metrics=took).real_time_factor == 0.2
    assert SpeechChunk(b"", "", metrics=took).real_time_factor is None
    assert SpeechChunk(bytes(48_000), "").real_time_factor is None


def test_a_unit_of_metrics_alone_says_nothing() -> None:
    d = Driver()
    d.append(1000)
    unit = d.last_unit()
    effects = d.do(UnitFinished(unit.fence, unit.seq, UnitResult(Decision.SPEAK)))
    assert d.events(effects) == []


def answered_early() -> Driver:
    """Return a session whose model has begun a second answer before the first was all sound."""
    d = Driver(AUTO)
    d.append(1000)
    d.speak("one")
    d.append(1000)
    d.speak("two")
    return d


def test_an_answer_that_comes_too_soon_waits_for_the_sound_of_the_one_before() -> None:
    d = answered_early()
    assert len(d.asked(Synthesize)) == 1
    d.append(1000)
    assert d.last_unit().seq == 2  # its unit is out until the answer counts
    d.voice("one", turn_end=True)
    d.voiced()
    assert d.said(ResponseFinished)[0].item.text == "one"
    assert d.last_unit().seq == 3
    d.voice("two", turn_end=True)
    d.listen()
    d.voiced()
    first, second = (done.response_id for done in d.said(ResponseFinished))
    assert [delta.response_id for delta in d.said(SpeechDelta)] == [first, second]
    assert first != second


def test_an_interruption_takes_back_an_answer_that_waits() -> None:
    d = answered_early()
    d.voice("one")
    unit = d.last_unit()
    d.do(ResponseCancelRequested())
    cancel = d.asked(CancelStages)[-1]
    assert (cancel.heard, cancel.consumed_seq) == ("", 1)
    again = d.last_unit()
    assert again.unit.pcm == unit.unit.pcm
    assert again.fence.epoch == unit.fence.epoch + 1
    # What was taken back is no answer to a later unit either.
    d.speak("three")
    d.append(1000)
    d.voice("three", turn_end=True)
    d.voiced()
    assert len(d.asked(Synthesize)) == 2
    assert len(d.said(ResponseStarted)) == 2


def test_a_speech_that_fails_takes_back_an_answer_that_waits() -> None:
    d = answered_early()
    d.voice("one")
    job = d.last_speech()
    d.do(SpeechFailed(job.fence, job.seq, StageFailed("out of tune")))
    assert d.said(ResponseFinished)[0].status == "failed"
    d.speak("two")
    d.voice("two", turn_end=True)
    d.voiced()
    assert d.said(ResponseFinished)[-1].item.text == "two"


def test_only_the_unit_that_is_out_can_be_answered_too_soon() -> None:
    d = answered_early()
    unit = d.last_unit()
    stray = UnitResult(Decision.SPEAK, "stray", turn_end=True)
    assert d.do(UnitFinished(unit.fence, unit.seq + 1, stray)) == []
    d.voiced()
    d.voice("two", turn_end=True)
    d.voiced()
    assert d.said(ResponseFinished)[-1].item.text == "two"


# --- the ledger of answers --------------------------------------------------------------------


def response(name: str = "r") -> Response:
    return Response(
        ResponseId(name),
        ItemId(f"item_{name}"),
        None,
        Fence(SessionId("s"), 0, 0, 0),
        ResponseOptions(),
        ("text", "audio"),
        AUTO.output_format,
    )


def test_an_answer_begins_and_ends_once() -> None:
    ledger = ResponseLedger()
    with pytest.raises(LocalProtocolError, match="no active"):
        ledger.finish()
    ledger.reserve(response())
    with pytest.raises(LocalProtocolError, match="already active"):
        ledger.reserve(response("other"))
    ledger.show()
    with pytest.raises(LocalProtocolError, match="already visible"):
        ledger.show()
    ledger.validate()
    ledger.active = None
    with pytest.raises(LocalProtocolError, match="lost or doubled"):
        ledger.validate()


def test_cursors_out_of_order_are_noticed() -> None:
    ledger = PlaybackLedger()
    ledger.open(ResponseId("r"))
    ledger.validate()
    ledger.cursor(ResponseId("r")).committed_ms = 1
    with pytest.raises(LocalProtocolError, match="out of order"):
        ledger.validate()


def test_an_answer_that_waits_unnoticed_is_noticed() -> None:
    ledger = PlaybackLedger()
    ledger.open(ResponseId("r"))
    ledger.cursor(ResponseId("r")).samples = 2_400
    with pytest.raises(LocalProtocolError, match="not what is pending"):
        ledger.validate()
