"""The engine: one half of a model in a process of its own, with its door and its slots.

Rule 1: a call that is not the lease's own needs a lease that is not over.
Rule 2: what ends a lease, whoever does it, releases the session at the model; what could not be
        released is tried again at every round of the reaper and keeps its slot.
Rule 3: gateways call it directly; its replica owns it, and it dies with its replica.
Rule 4: when the model has died, the process ends itself. So whoever waits for this process learns
        it at once and in one way, and the replica, which lives, starts both anew.
"""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, ClassVar, Final

from serve_app.clock import Clock, MonotonicClock, unix_now_s
from serve_app.leasing.lease import HeldLease, LeaseBook, LeaseEnd
from serve_app.logs.process_logs import set_up
from serve_app.logs.session_log import say, trouble
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
from serve_app.metrics.meter import NO_METER, REFRESH_S, Meter
from serve_app.metrics.ray_meter import engine_meter
from serve_app.settings import LogArgs
from serve_app.tracing.opening import open_tracer
from serve_app.tracing.settings import NO_TRACING, TracingSettings
from serve_app.tracing.stage_call import TracedCall, traced_call
from serve_app.tracing.tracer import NO_TRACER, TraceParent, Tracer
from session.config import RuntimeConfig, SessionLimits
from session.errors import DuplexError, StageFailed, StageRefused
from session.fence import Fence
from session.ids import OperationId, SessionId
from session.unit import SpeechChunk, Unit, UnitResult
from stages.binding import Stage0Door, Stage1Door
from stages.contract import (
    Capacity,
    Released,
    RemembersTokens,
    Speech,
    Stage0Model,
    Stage1Model,
)
from stages.plugins import load_plugin

log = logging.getLogger(__name__)

EXIT_CODE: Final = 70
"""Of a process whose model died (EX_SOFTWARE of sysexits.h)."""


def end_process(reason: str) -> None:
    """End this process at once, since nothing in it is of use any more."""
    log.critical("the model died, so its process ends: %s", reason)
    logging.shutdown()
    os._exit(EXIT_CODE)


class Engine:
    """What both engines have in common."""

    stage: ClassVar[str]
    _tracer: Tracer

    def __init__(
        self,
        model: Stage0Model | Stage1Model,
        door: Stage0Door | Stage1Door,
        limits: SessionLimits,
        *,
        clock: Clock,
        on_death: Callable[[str], None],
        meter: Meter,
    ) -> None:
        self._model = model
        self._meter = meter
        self._on_death = on_death
        self._watch: asyncio.Task[None] | None = None
        self._guarded = door
        self._limits = limits
        self._clock = clock
        self._book = LeaseBook(max_sessions=limits.max_sessions, ttl_s=limits.lease_ttl_s)
        self._releasing: dict[HeldLease, asyncio.Task[None]] = {}
        self._is_warm = False

    async def start(self) -> None:
        """Warm the model up and begin to look after the leases."""
        self._show()
        await self._model.warm_up()
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
            lease = self._book.admit(session_id, incarnation, now=self._clock.now())
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
        return self._book.renew(session_ids, now=self._clock.now())

    async def open(self, fence: Fence, runtime: RuntimeConfig) -> None:
        """Bind a session that holds a slot."""
        self._need_lease(fence)
        await self._guarded.open(fence, runtime)

    async def configure(self, fence: Fence, runtime: RuntimeConfig, generation: int) -> None:
        """Acknowledge settings that take effect between two units."""
        self._need_lease(fence)
        await self._guarded.configure(fence, runtime, generation)

    async def cancel(
        self, cancelled: Fence, current: Fence, heard: str, consumed_seq: int | None = None
    ) -> Released:
        """Advance to `current` and drop what `cancelled` held."""
        return await self._guarded.cancel(cancelled, current, heard, consumed_seq)

    async def close(self, fence: Fence) -> Released:
        """Release the session at the model, and with it the slot."""
        lease = self._book.of(fence.session_id, fence.incarnation)
        try:
            released = await self._guarded.close(fence)
        except StageFailed:
            # The session is over all the same; the reaper goes on trying.
            if lease is not None:
                lease.end(LeaseEnd.CLOSED)
            raise
        if lease is not None:
            self._book.free(lease)
        return released

    async def _watch_model(self) -> None:
        reason = await self._model.died()
        self._is_warm = False
        self._on_death(reason)

    async def alive(self) -> None:
        """Never return: whoever awaits this learns of the end of the process."""
        await asyncio.Event().wait()

    async def health(self) -> str:
        """Return `ok`, or what is wrong."""
        return "ok" if self._is_warm else "the model is not warm yet"

    async def capacity(self) -> Capacity:
        """Return what is left."""
        return Capacity(self._book.max_sessions, self._book.taken)

    def reap(self) -> None:
        """End the leases whose time is up, and release what is over and not released yet."""
        self._book.expire(now=self._clock.now())
        for lease in self._book.ending():
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
        taken, slots = self._book.taken, self._book.max_sessions
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
            holds=self._guarded.holds,
        )

    def _need_lease(self, fence: Fence) -> None:
        lease = self._book.of(fence.session_id, fence.incarnation)
        if lease is None or lease.is_over:
            raise StageRefused("the session holds no slot at this stage")

    def _start_release(self, lease: HeldLease) -> None:
        if lease in self._releasing:
            return
        task = asyncio.create_task(self._release(lease))  # noqa: TID251 - held in _releasing
        self._releasing[lease] = task
        task.add_done_callback(lambda _: self._releasing.pop(lease, None))

    async def _release(self, lease: HeldLease) -> None:
        fence = self._guarded.fence_of(lease.session_id)
        try:
            if fence is not None and fence.incarnation == lease.incarnation:
                await self._guarded.close(fence)
        except DuplexError as error:
            facts = trouble(error, stage=self.stage)
            say(log, logging.WARNING, "release failed, will try again", fence, facts)
            return
        self._book.free(lease)


class Stage0Engine(Engine):
    """The hearing and deciding half in its process."""

    stage = "stage0"

    def __init__(
        self,
        model: Stage0Model,
        limits: SessionLimits,
        clock: Clock | None = None,
        on_death: Callable[[str], None] = end_process,
        meter: Meter = NO_METER,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        clock = clock or MonotonicClock()
        self._tracer = tracer
        cache_size = limits.completed_append_cache_size
        self._door = Stage0Door(model, cache_size=cache_size, now=clock.now)
        super().__init__(model, self._door, limits, clock=clock, on_death=on_death, meter=meter)
        self._recent_unit_ms = 0.0

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
        began = self._clock.now()
        with self._traced("stage0.append", trace, fence, seq) as call:
            appended = await self._door.append(
                fence, seq=seq, operation_id=operation_id, unit=unit, config_generation=generation
            )
            call.answered(appended.result)
        took_ms = 1000 * (self._clock.now() - began)
        self._recent_unit_ms += 0.2 * (took_ms - self._recent_unit_ms)
        return appended.result, appended.speech

    async def capacity(self) -> Capacity:
        """Return what is left, and how long units take lately."""
        return Capacity(self._book.max_sessions, self._book.taken, self._recent_unit_ms)


class Stage1Engine(Engine):
    """The speaking half in its process."""

    stage = "stage1"

    def __init__(
        self,
        model: Stage1Model,
        limits: SessionLimits,
        clock: Clock | None = None,
        meter: Meter = NO_METER,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        clock = clock or MonotonicClock()
        self._tracer = tracer
        self._door = Stage1Door(model, now=clock.now)
        super().__init__(model, self._door, limits, clock=clock, on_death=end_process, meter=meter)

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


class Stage0Actor(Stage0Engine):
    """Stage0's engine as an actor: finds its model in the process that it will live in."""

    def __init__(
        self,
        plugin: str,
        settings: dict[str, Any],
        limits: SessionLimits,
        logs: LogArgs,
        tracing: TracingSettings = NO_TRACING,
    ) -> None:
        set_up(logs, f"{self.stage}_engine")
        model = load_plugin(plugin).make_stage0(settings)
        meter, clock = engine_meter(self.stage), MonotonicClock()
        tracer = open_tracer(tracing, self.stage, clock=clock, meter=meter)
        super().__init__(model, limits, clock, meter=meter, tracer=tracer)

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


class Stage1Actor(Stage1Engine):
    """Stage1's engine as an actor: finds its model in the process that it will live in."""

    def __init__(
        self,
        plugin: str,
        settings: dict[str, Any],
        limits: SessionLimits,
        logs: LogArgs,
        tracing: TracingSettings = NO_TRACING,
    ) -> None:
        set_up(logs, f"{self.stage}_engine")
        model = load_plugin(plugin).make_stage1(settings)
        meter, clock = engine_meter(self.stage), MonotonicClock()
        tracer = open_tracer(tracing, self.stage, clock=clock, meter=meter)
        super().__init__(model, limits, clock, meter=meter, tracer=tracer)
