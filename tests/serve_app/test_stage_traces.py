"""What an engine adds to the trace of a unit, in its own process."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager

import pytest

from serve_app.leasing.engine import Stage0Engine, Stage1Engine
from serve_app.tracing.stage_call import traced_call
from serve_app.tracing.tracer import TraceParent
from session.config import RuntimeConfig, SessionLimits
from session.errors import StageFailed, StageRefused
from session.fence import Fence
from session.ids import OperationId, SessionId
from session.unit import (
    Decision,
    SegmentMetrics,
    SpeechChunk,
    SpeechMetrics,
    StageTime,
    Unit,
    UnitResult,
)
from stages.contract import Speech
from tests.fakes.clock import FakeClock
from tests.fakes.engine_process import engine_process
from tests.fakes.traces import WALL_NS, KeptSpans
from tests.support.models import HandStage0, HandStage1
from tests.support.otlp_receiver import SpanSeen

F = Fence(SessionId("s"), 0, 0, 0)
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = TraceParent(f"00-{TRACE}-b7ad6b7169203331-01")
SECRET = "a secret word"
SPOKEN = Unit(b"\0\0", text=SECRET)
MS = 1_000_000


@asynccontextmanager
async def opened(
    engine: Stage0Engine | Stage1Engine,
) -> AsyncGenerator[None, None]:
    """Let the engine hold the session while the block lasts."""
    async with aclosing(engine.hold(F.session_id, 0)) as lease:
        await anext(lease)
        await engine.open(F, RuntimeConfig())
        yield
        await engine.close(F.next_epoch())


def stage0(kept: KeptSpans, model: HandStage0) -> Stage0Engine:
    clock = FakeClock()
    return Stage0Engine(model, SessionLimits(), engine_process(clock, tracer=kept.tracer(clock)))


def stage1(kept: KeptSpans, model: HandStage1) -> Stage1Engine:
    clock = FakeClock()
    return Stage1Engine(model, SessionLimits(), engine_process(clock, tracer=kept.tracer(clock)))


async def append(engine: Stage0Engine, trace: TraceParent | None = PARENT) -> None:
    await engine.append(F, 1, OperationId("op"), SPOKEN, 0, trace)


def is_ours(span: SpanSeen) -> bool:
    return (span.trace.hex(), span.parent.hex()) == (TRACE, "b7ad6b7169203331")


async def test_stage0_goes_on_with_the_units_trace() -> None:
    kept = KeptSpans()
    engine = stage0(kept, HandStage0())
    async with opened(engine):
        await append(engine)
    span = kept.one("stage0.append")
    assert is_ours(span)
    assert span.values == {
        "session.id": "s",
        "duplex.epoch": 0,
        "duplex.seq": 1,
        "duplex.decision": "speak",
    }
    assert [kept.one(name).parent for name in ("queue", "compute")] == [span.id, span.id]
    assert SECRET not in repr(kept.spans)


async def test_a_unit_without_a_trace_leaves_no_span() -> None:
    kept = KeptSpans()
    engine = stage0(kept, HandStage0())
    async with opened(engine):
        await append(engine, None)
    assert kept.spans == []


async def test_a_failed_unit_says_so_with_its_code_alone() -> None:
    kept, model = KeptSpans(), HandStage0()
    model.fail_next("work", StageFailed(SECRET))
    engine = stage0(kept, model)
    async with opened(engine):
        with pytest.raises(StageFailed):
            await append(engine)
    span = kept.one("stage0.append")
    assert (span.has_failed, span.said) == (True, "stage_failed")
    assert SECRET not in repr(kept.spans)


@asynccontextmanager
async def refused_append(engine: Stage0Engine, model: HandStage0) -> AsyncGenerator[None, None]:
    """Begin a unit, which is refused after what the block does."""
    model.gates["work"].hold()
    appending = asyncio.ensure_future(append(engine))
    await model.gates["work"].reached.wait()
    yield
    with pytest.raises(StageRefused):
        await appending


async def test_a_cancelled_unit_is_marked_and_has_not_failed() -> None:
    kept, model = KeptSpans(), HandStage0()
    engine = stage0(kept, model)
    async with opened(engine), refused_append(engine, model):
        model.gates["work"].release()
        await engine.cancel(F, F.next_epoch(), "")
    span = kept.one("stage0.append")
    assert span.values["duplex.cancelled"] is True
    assert not span.has_failed


async def test_a_unit_in_the_middle_of_which_the_session_ends_has_not_failed() -> None:
    kept, model = KeptSpans(), HandStage0()
    engine = stage0(kept, model)
    async with opened(engine), refused_append(engine, model):
        await engine.close(F)
    span = kept.one("stage0.append")
    assert span.values["duplex.cancelled"] is True
    assert not span.has_failed


async def test_speech_in_the_middle_of_which_the_session_ends_is_marked() -> None:
    kept, model = KeptSpans(), HandStage1()
    engine = stage1(kept, model)
    async with opened(engine):
        speech = Speech(SECRET, segment_end=True, turn_end=True)
        async with aclosing(engine.speak(F, 1, speech, PARENT)) as stream:
            await anext(stream)
            model.gates["close"].hold()
            closing = asyncio.ensure_future(engine.close(F))
            await model.gates["close"].reached.wait()
            assert [chunk async for chunk in stream] == []
            model.gates["close"].release()
            await closing
    span = kept.one("stage1.speak")
    assert (span.values["duplex.chunks"], span.values["duplex.cancelled"]) == (1, True)
    assert not span.has_failed


async def test_stage1_notes_every_chunk() -> None:
    kept = KeptSpans()
    engine = stage1(kept, HandStage1())
    async with opened(engine):
        speech = Speech(SECRET, segment_end=True, turn_end=True)
        chunks = [chunk async for chunk in engine.speak(F, 1, speech, PARENT)]
    span = kept.one("stage1.speak")
    assert is_ours(span)
    assert [note.name for note in span.notes] == ["chunk"] * len(chunks) == ["chunk"] * 3
    assert [note.values["duplex.chunk"] for note in span.notes] == [1, 2, 3]
    assert span.values["duplex.chunks"] == 3
    assert "duplex.cancelled" not in span.values
    assert [kept.one(name).parent for name in ("queue", "compute")] == [span.id, span.id]
    assert SECRET not in repr(kept.spans)


@pytest.mark.parametrize("is_told", [True, False], ids=["by cancel", "by leaving the stream"])
async def test_speech_that_is_stopped_is_marked(*, is_told: bool) -> None:
    kept, model = KeptSpans(), HandStage1()
    engine = stage1(kept, model)
    async with opened(engine):
        speech = Speech(SECRET, segment_end=True, turn_end=True)
        async with aclosing(engine.speak(F, 1, speech, PARENT)) as stream:
            await anext(stream)
            if is_told:
                await engine.cancel(F, F.next_epoch(), "")
                assert [chunk async for chunk in stream] == []
    span = kept.one("stage1.speak")
    assert (span.values["duplex.chunks"], span.values["duplex.cancelled"]) == (1, True)
    assert not span.has_failed


def test_where_the_time_went_is_shown_as_two_stretches() -> None:
    kept, clock = KeptSpans(), FakeClock()
    tracer = kept.tracer(clock)
    told = SegmentMetrics(ttft_ms=30.0, tpot_ms=1.0, itls_ms=(), generated_tokens=7)
    with traced_call(
        tracer, "stage0.append", PARENT, fence=F, seq=1, clock=clock, holds=lambda _: True
    ) as call:
        clock.advance(0.5)
        call.answered(UnitResult(Decision.LISTEN, metrics=told, time=StageTime(0.1, 0.3)))
        clock.advance(0.1)
    seen = [
        (span.name, (span.began_ns - WALL_NS) // MS, (span.ended_ns - WALL_NS) // MS)
        for span in kept.spans
    ]
    assert seen == [("queue", 0, 100), ("compute", 100, 400), ("stage0.append", 0, 600)]
    values = kept.one("stage0.append").values
    assert (values["duplex.tokens"], values["duplex.ttft_ms"]) == (7, 30.0)


def test_a_repeated_answer_took_its_time_before() -> None:
    kept, clock = KeptSpans(), FakeClock()
    with traced_call(
        kept.tracer(clock), "a", PARENT, fence=F, seq=1, clock=clock, holds=lambda _: True
    ) as call:
        clock.advance(0.1)
        call.answered(UnitResult(Decision.LISTEN, time=StageTime(1.0, 3.0)))
    assert all(span.fits_into(kept.one("a")) for span in kept.spans)


def test_a_chunk_says_what_it_took() -> None:
    kept, clock = KeptSpans(), FakeClock()
    with traced_call(
        kept.tracer(clock), "a", PARENT, fence=F, seq=1, clock=clock, holds=lambda _: True
    ) as call:
        call.made(SpeechChunk(bytes(4800), SECRET, metrics=SpeechMetrics(1.0, 2.0, 3.0, 4.0, 5)))
    (note,) = kept.one("a").notes
    assert note.values == {
        "duplex.chunk": 1,
        "duplex.audio_ms": 100,
        "duplex.talker_ms": 1.0,
        "duplex.flow_ms": 2.0,
        "duplex.vocoder_ms": 3.0,
        "duplex.waited_ms": 4.0,
        "duplex.batch": 5,
    }
