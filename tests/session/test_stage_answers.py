"""What stages answer: out of turn, without effect, or for the last time."""

import pytest

from session.config import ResponseOptions
from session.errors import LocalProtocolError, StageFailed, StageUnavailable
from session.events import ItemAdded, ResponseFinished, SpeechDelta
from session.fence import Fence
from session.ids import ItemId, ResponseId, SessionId
from session.ledger.playback import PlaybackLedger
from session.ledger.response import Response, ResponseLedger
from session.stimuli import (
    ItemCreated,
    ResponseRequested,
    SpeechArrived,
    SpeechFailed,
    SpeechFinished,
    UnitFailed,
    UnitFinished,
)
from session.unit import Decision, SegmentMetrics, SpeechChunk, UnitResult
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
    assert d.session.snapshot().state == "closing"


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


def test_a_unit_of_metrics_alone_says_nothing() -> None:
    d = Driver()
    d.append(1000)
    unit = d.last_unit()
    effects = d.do(UnitFinished(unit.fence, unit.seq, UnitResult(Decision.SPEAK)))
    assert d.events(effects) == []


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
