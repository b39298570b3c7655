"""One half of a model behind its door and its slots. `engine_actor` gives it a process.

Rule 1: a call that is not the lease's own needs a lease that is not over.
Rule 2: what ends a lease, whoever does it, releases the session at the model; what could not be
        released is tried again at every round of the reaper and keeps its slot.
Rule 3: when the model has died, the process ends itself. So whoever waits for this process learns
        it at once and in one way, and the replica, which lives, starts both anew.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from serve_app.clock import Clock, unix_now_s
from serve_app.leasing.lease import HeldLease, LeaseBook, LeaseEnd
from serve_app.logs.log_lines import say, trouble
from serve_app.metrics.chunks import record_chunk
from serve_app.metrics.definitions import (
    ENGINE_STARTED,
    ENGINE_UP,
    KV_TOKENS,
    LEASES_ENDED,
    LEASES_REFUSED,
    STAGE_LIMIT,
    STAGE_SLOTS,
)
from serve_app.metrics.meter import REFRESH_S, Meter
from serve_app.tracing.stage_call import TracedCall, traced_call
from serve_app.tracing.tracer import TraceParent, Tracer
from session.config import RuntimeConfig, SessionLimits
from session.errors import DuplexError, StageFailed, StageRefused
from session.fence import Fence
from session.ids import OperationId, SessionId
from session.unit import SpeechChunk, Unit, UnitResult
from stages.binding import Stage0Door, Stage1Door
from stages.contract import Released, RemembersTokens, Speech, Stage0Model, Stage1Model

log = logging.getLogger(__name__)

DoorT = TypeVar("DoorT", bound=Stage0Door | Stage1Door)


@dataclass(frozen=True, slots=True)
class EngineProcess:
    """What an engine uses of the process that it lives in."""

    clock: Clock
    meter: Meter
    tracer: Tracer
    end: Callable[[str], None]
    """Called with the reason when the model has died."""
    settle: Callable[[], None]
    """Called once, when all is there that stays until the end."""


class Engine(Generic[DoorT]):
    """What both engines have in common."""

    stage: ClassVar[str]

    def __init__(
        self,
        model: Stage0Model | Stage1Model,
        door: DoorT,
        limits: SessionLimits,
        process: EngineProcess,
    ) -> None:
        self._model = model
        self._door = door
        self._limits = limits
        self._clock = process.clock
        self._meter = process.meter
        self._tracer = process.tracer
        self._end_process = process.end
        self._settle_process = process.settle
        self._watch: asyncio.Task[None] | None = None
        self.book = LeaseBook(max_sessions=limits.max_sessions, ttl_s=limits.lease_ttl_s)
        self._releasing: dict[HeldLease, asyncio.Task[None]] = {}
        self._is_warm = False

    async def start(self) -> None:
        """Warm the model up and begin to look after the leases."""
        self._show()
        await self._model.warm_up()
        self._settle_process()
        self._is_warm = True
        self._meter.set(ENGINE_STARTED, unix_now_s(), self.stage)
        self._watch = asyncio.create_task(self._watch_model())  # noqa: TID251 - ends the process
        self._go_round()

    async def hold(
        self, session_id: SessionId, incarnation: int
    ) -> AsyncGenerator[DuplexError | LeaseEnd | None, None]:
        """Hold a slot: yields None or why there is none, and the reason when the lease is over.

        Ends when the slot is free again. Leaving the stream gives the slot back.
        """
        try:
            lease = self.book.admit(session_id, incarnation, now=self._clock.now())
        except DuplexError as error:
            self._meter.count(LEASES_REFUSED, self.stage)
            yield error
            return
        try:
            yield None
            yield await lease.ended()
            self._start_release(lease)
            await lease.freed.wait()
        finally:
            lease.end(LeaseEnd.GIVEN_BACK)
            self._meter.count(LEASES_ENDED, self.stage, lease.over.result().value)
            self._start_release(lease)

    async def renew(self, session_ids: Sequence[SessionId]) -> tuple[SessionId, ...]:
        """Prolong leases; return the sessions that have none any more."""
        return self.book.renew(session_ids, now=self._clock.now())

    async def open(self, fence: Fence, runtime: RuntimeConfig) -> None:
        """Bind a session that holds a slot."""
        self._need_lease(fence)
        await self._door.open(fence, runtime)

    async def configure(self, fence: Fence, runtime: RuntimeConfig, generation: int) -> None:
        """Acknowledge settings that take effect between two units."""
        self._need_lease(fence)
        await self._door.configure(fence, runtime, generation)

    async def cancel(
        self, cancelled: Fence, current: Fence, heard: str, consumed_seq: int | None = None
    ) -> Released:
        """Advance to `current` and drop what `cancelled` held."""
        return await self._door.cancel(cancelled, current, heard, consumed_seq)

    async def close(self, fence: Fence) -> Released:
        """Release the session at the model, and with it the slot."""
        lease = self.book.of(fence.session_id, fence.incarnation)
        try:
            released = await self._door.close(fence)
        except StageFailed:
            # The session is over all the same; the reaper goes on trying.
            if lease is not None:
                lease.end(LeaseEnd.CLOSED)
            raise
        if lease is not None:
            self.book.free(lease)
        return released

    async def _watch_model(self) -> None:
        reason = await self._model.died()
        self._is_warm = False
        self._end_process(reason)

    async def alive(self) -> None:
        """Never return: whoever awaits this learns of the end of the process."""
        await asyncio.Event().wait()

    async def health(self) -> str:
        """Return `ok`, or what is wrong."""
        return "ok" if self._is_warm else "the model is not warm yet"

    async def sessions_held(self) -> int:
        """Return how many sessions have a slot."""
        return self.book.taken

    def reap(self) -> None:
        """End the leases whose time is up, and release what is over and not released yet."""
        self.book.expire(now=self._clock.now())
        for lease in self.book.ending():
            self._start_release(lease)

    def _go_round(self) -> None:
        """Reap now and every interval from now on; a timer, so that nothing is left at the end."""
        try:
            self.reap()
        finally:
            next_s = self._clock.now() + self._limits.reaper_interval_s
            self._clock.call_at(next_s, self._go_round)

    def _show(self) -> None:
        """Say what there is now, and again and again from now on."""
        try:
            self._measure()
            self._meter.refresh()
        finally:
            self._clock.call_at(self._clock.now() + REFRESH_S, self._show)

    def _measure(self) -> None:
        taken, slots = self.book.taken, self.book.max_sessions
        self._meter.set(STAGE_LIMIT, slots, self.stage)
        self._meter.set(STAGE_SLOTS, taken, self.stage, "taken")
        self._meter.set(STAGE_SLOTS, slots - taken, self.stage, "free")
        self._meter.set(ENGINE_UP, int(self._is_warm), self.stage)
        if self._is_warm and isinstance(self._model, RemembersTokens):
            memory = self._model.token_memory()
            self._meter.set(KV_TOKENS, memory.used, self.stage, "used")
            self._meter.set(KV_TOKENS, memory.reserved, self.stage, "reserved")
            self._meter.set(KV_TOKENS, memory.capacity, self.stage, "capacity")

    def _traced(self, name: str, trace: TraceParent | None, fence: Fence, seq: int) -> TracedCall:
        return traced_call(
            self._tracer,
            name,
            trace,
            fence=fence,
            seq=seq,
            clock=self._clock,
            holds=self._door.holds,
        )

    def _need_lease(self, fence: Fence) -> None:
        lease = self.book.of(fence.session_id, fence.incarnation)
        if lease is None or lease.is_over:
            raise StageRefused("the session holds no slot at this stage")

    def _start_release(self, lease: HeldLease) -> None:
        if lease in self._releasing:
            return
        task = asyncio.create_task(self._release(lease))  # noqa: TID251 - held in _releasing
        self._releasing[lease] = task
        task.add_done_callback(lambda _: self._releasing.pop(lease, None))

    async def _release(self, lease: HeldLease) -> None:
        fence = self._door.fence_of(lease.session_id)
        try:
            if fence is not None and fence.incarnation == lease.incarnation:
                await self._door.close(fence)
        except DuplexError as error:
            facts = trouble(error, stage=self.stage)
            say(log, logging.WARNING, "release failed, will try again", fence, facts)
            return
        self.book.free(lease)


class Stage0Engine(Engine[Stage0Door]):
    """The hearing and deciding half in its process."""

    stage = "stage0"

    def __init__(self, model: Stage0Model, limits: SessionLimits, process: EngineProcess) -> None:
        cache_size = limits.completed_append_cache_size
        door = Stage0Door(model, cache_size=cache_size, now=process.clock.now)
        super().__init__(model, door, limits, process)

    async def append(
        self,
        fence: Fence,
        seq: int,
        operation_id: OperationId,
        unit: Unit,
        generation: int,
        trace: TraceParent | None = None,
    ) -> tuple[UnitResult, Speech | None]:
        """Give one unit to the model. Two values, so that a caller need not fetch the speech."""
        self._need_lease(fence)
        with self._traced("stage0.append", trace, fence, seq) as call:
            appended = await self._door.append(
                fence, seq=seq, operation_id=operation_id, unit=unit, config_generation=generation
            )
            call.answered(appended.result)
        return appended.result, appended.speech

    async def append_by_value(
        self,
        fence: Fence,
        seq: int,
        operation_id: OperationId,
        unit: Unit,
        generation: int,
        trace: TraceParent | None = None,
    ) -> tuple[UnitResult | DuplexError, Speech | None]:
        """Append, with an error as the first value.

        Raised, it would stand in both values, and Ray logs the one that nobody looks into.
        """
        try:
            return await self.append(fence, seq, operation_id, unit, generation, trace)
        except DuplexError as error:
            return error, None


class Stage1Engine(Engine[Stage1Door]):
    """The speaking half in its process."""

    stage = "stage1"

    def __init__(self, model: Stage1Model, limits: SessionLimits, process: EngineProcess) -> None:
        super().__init__(model, Stage1Door(model, now=process.clock.now), limits, process)

    async def speak(
        self, fence: Fence, seq: int, speech: Speech, trace: TraceParent | None = None
    ) -> AsyncGenerator[SpeechChunk, None]:
        """Stream one unit's speech."""
        self._need_lease(fence)
        with self._traced("stage1.speak", trace, fence, seq) as call:
            stream = self._door.speak(fence, seq=seq, speech=speech)
            try:
                async for chunk in stream:
                    record_chunk(self._meter, chunk)
                    call.made(chunk)
                    yield chunk
            finally:
                await stream.aclose()
