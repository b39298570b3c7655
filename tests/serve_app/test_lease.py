"""Leases: slots, renewals, and the engine that frees a slot only when the model has let go."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from serve_app.leasing.engine import Stage0Engine, Stage1Engine
from serve_app.leasing.lease import LeaseBook, LeaseEnd
from serve_app.metrics.definitions import STAGE1_AUDIO
from session.config import RuntimeConfig, SessionLimits
from session.errors import AdmissionRefused, DuplexError, StageFailed, StageRefused
from session.fence import Fence
from session.ids import OperationId, SessionId
from session.unit import OUTPUT_RATE_HZ, Decision, Unit
from stages.contract import Released, Speech
from tests.fakes.clock import FakeClock
from tests.fakes.engine_process import engine_process
from tests.fakes.meter import CountedMeter
from tests.support.models import HandStage0, HandStage1, settle

A, B, C = (SessionId(f"sess_{letter}") for letter in "abc")
RUNTIME = RuntimeConfig()
LIMITS = SessionLimits(max_sessions=2, lease_ttl_s=15.0, reaper_interval_s=5.0)


def fence(session_id: SessionId = A, incarnation: int = 0) -> Fence:
    return Fence(session_id, incarnation, 0, 0)


# --- the book -----------------------------------------------------------------------------------


@pytest.fixture
async def book() -> LeaseBook:
    return LeaseBook(max_sessions=2, ttl_s=15.0)


async def test_there_are_so_many_slots_and_no_more(book: LeaseBook) -> None:
    book.admit(A, 0, now=0)
    book.admit(B, 0, now=0)
    with pytest.raises(AdmissionRefused, match="all 2 session slots"):
        book.admit(C, 0, now=0)
    assert book.taken == 2


async def test_a_session_takes_one_slot(book: LeaseBook) -> None:
    book.admit(A, 0, now=0)
    with pytest.raises(StageRefused):
        book.admit(A, 1, now=0)
    assert book.taken == 1


async def test_an_ended_lease_keeps_its_slot_until_it_is_freed(book: LeaseBook) -> None:
    first = book.admit(A, 0, now=0)
    book.admit(B, 0, now=0)
    first.end(LeaseEnd.CLOSED)
    with pytest.raises(AdmissionRefused):
        book.admit(C, 0, now=0)
    book.free(first)
    book.admit(C, 0, now=0)


async def test_a_lease_ends_once_with_its_first_reason(book: LeaseBook) -> None:
    lease = book.admit(A, 0, now=0)
    waiting = asyncio.ensure_future(lease.ended())
    await settle()
    assert not waiting.done()
    lease.end(LeaseEnd.EXPIRED)
    lease.end(LeaseEnd.CLOSED)
    assert await waiting is await lease.ended() is LeaseEnd.EXPIRED


async def test_what_is_renewed_in_time_does_not_expire(book: LeaseBook) -> None:
    kept, dropped = book.admit(A, 0, now=0), book.admit(B, 0, now=0)
    assert book.renew([A], now=10) == ()
    book.expire(now=14.9)
    assert not dropped.is_over
    book.expire(now=15)
    assert (kept.is_over, dropped.is_over) == (False, True)
    assert book.ending() == [dropped]
    assert book.renew([A, B, C], now=16) == (B, C)


async def test_freeing_an_old_lease_does_not_touch_a_newer_one(book: LeaseBook) -> None:
    old = book.admit(A, 0, now=0)
    book.free(old)
    book.admit(A, 1, now=0)
    book.free(old)
    assert book.of(A, 1) is not None
    assert book.of(A, 0) is None


# --- the engine ---------------------------------------------------------------------------------

Stream = AsyncGenerator[DuplexError | LeaseEnd | None, None]


class Bench:
    """An engine with a model that does as it is told, and a clock that a test moves."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.model = HandStage0()
        self.engine = Stage0Engine(self.model, LIMITS, engine_process(self.clock))

    async def hold(self, session_id: SessionId = A, incarnation: int = 0) -> Stream:
        """Take a slot, and return the stream that keeps it."""
        stream = self.engine.hold(session_id, incarnation)
        assert await anext(stream) is None
        return stream

    async def refusal(self, session_id: SessionId) -> DuplexError | LeaseEnd | None:
        """Ask for a slot that there is not."""
        return await anext(self.engine.hold(session_id, 0))

    def free_slots(self) -> int:
        """Return how many slots are free."""
        return self.engine.book.max_sessions - self.engine.book.taken


@pytest.fixture
async def bench() -> Bench:
    return Bench()


async def test_a_session_works_while_its_lease_holds(bench: Bench) -> None:
    stream = await bench.hold()
    await bench.engine.open(fence(), RUNTIME)
    result, speech = await bench.engine.append(
        fence(), 1, OperationId("op_1"), Unit(b"", text="hello"), 0
    )
    assert result.decision is Decision.SPEAK
    assert isinstance(speech, Speech)
    await bench.engine.configure(fence(), RUNTIME, 1)
    assert await bench.engine.cancel(fence(), fence().next_epoch(), "") == Released()
    assert await bench.engine.close(fence().next_epoch()) == Released(sessions=1)
    assert await anext(stream) is LeaseEnd.CLOSED
    assert bench.free_slots() == 2
    await stream.aclose()


async def test_without_a_lease_nothing_is_opened(bench: Bench) -> None:
    with pytest.raises(StageRefused, match="no slot"):
        await bench.engine.open(fence(), RUNTIME)
    stream = await bench.hold(incarnation=1)
    with pytest.raises(StageRefused, match="no slot"):
        await bench.engine.open(fence(incarnation=0), RUNTIME)
    await stream.aclose()


async def test_one_session_too_many_is_told_so(bench: Bench) -> None:
    held = [await bench.hold(A), await bench.hold(B)]
    assert isinstance(await bench.refusal(C), AdmissionRefused)
    await bench.engine.close(fence(A))
    held.append(await bench.hold(C))
    for stream in held:
        await stream.aclose()


async def test_leaving_the_lease_releases_the_session(bench: Bench) -> None:
    stream = await bench.hold()
    await bench.engine.open(fence(), RUNTIME)
    await stream.aclose()
    with pytest.raises(StageRefused, match="no slot"):
        await bench.engine.append(fence(), 1, OperationId("op_1"), Unit(bytes(2)), 0)
    await settle()
    assert bench.model.open_sessions == set()
    assert bench.free_slots() == 2


async def test_leaving_the_lease_during_the_open_leaves_nothing(bench: Bench) -> None:
    stream = await bench.hold()
    gate = bench.model.gates["open"]
    gate.hold()
    opening = asyncio.ensure_future(bench.engine.open(fence(), RUNTIME))
    await gate.reached.wait()
    await stream.aclose()
    assert bench.free_slots() == 1
    gate.release()
    await asyncio.wait({opening})
    await settle()
    assert bench.model.open_sessions == set()
    assert bench.free_slots() == 2


async def test_a_failed_release_keeps_the_slot_and_the_reaper_tries_again(bench: Bench) -> None:
    stream = await bench.hold()
    await bench.engine.open(fence(), RUNTIME)
    for _ in range(3):
        bench.model.fail_next("close", OSError("busy"))
    with pytest.raises(StageFailed, match="busy"):
        await bench.engine.close(fence())
    assert await anext(stream) is LeaseEnd.CLOSED
    rest = asyncio.ensure_future(anext(stream, None))
    await settle()
    assert bench.free_slots() == 1
    assert not rest.done()
    bench.engine.reap()
    await settle()
    assert bench.free_slots() == 1
    bench.engine.reap()
    await settle()
    assert bench.free_slots() == 2
    assert bench.model.open_sessions == set()
    assert await rest is None


async def test_the_reaper_goes_its_rounds_and_ends_what_nobody_renews(bench: Bench) -> None:
    await bench.engine.start()
    assert bench.model.calls["warm_up"] == 1
    kept, dropped = await bench.hold(A), await bench.hold(B)
    for session_id in (A, B):
        await bench.engine.open(fence(session_id), RUNTIME)
    for _ in range(4):
        bench.clock.advance(5.0)
        await bench.engine.renew([A])
        await settle()
    assert await anext(dropped) is LeaseEnd.EXPIRED
    assert bench.model.open_sessions == {A}
    assert await bench.engine.renew([A, B]) == (B,)
    await kept.aclose()
    await dropped.aclose()


async def test_an_engine_is_healthy_once_it_is_warm(bench: Bench) -> None:
    assert "not warm" in await bench.engine.health()
    await bench.engine.start()
    assert await bench.engine.health() == "ok"


async def test_the_speaking_half_streams_under_its_lease() -> None:
    model = HandStage1()
    meter = CountedMeter()
    engine = Stage1Engine(model, LIMITS, engine_process(FakeClock(), meter=meter))
    speech = Speech("one two", segment_end=True, turn_end=True)
    with pytest.raises(StageRefused, match="no slot"):
        await anext(engine.speak(fence(), 1, speech))
    stream = engine.hold(A, 0)
    await anext(stream)
    await engine.open(fence(), RUNTIME)
    said = [chunk async for chunk in engine.speak(fence(), 1, speech)]
    assert [chunk.transcript for chunk in said] == ["one ", "two"]
    made_s = sum(chunk.samples for chunk in said) / OUTPUT_RATE_HZ
    assert meter.of(STAGE1_AUDIO) == {(): pytest.approx(made_s)}
    assert made_s > 0
    await engine.close(fence())
    await stream.aclose()
