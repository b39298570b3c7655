"""The gateway's way to the stages, over Ray: leases both, calls their engines, gives them back.

Rule 1: Stage0 is leased before Stage1, everywhere, and both before either is opened.
Rule 2: what fails on the way gives back everything that was taken before it.
Rule 3: one renewal call an engine keeps the leases of all sessions there.
"""

import asyncio
import contextvars
import functools
import logging
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any, Final

import ray
from ray.exceptions import RayActorError
from ray.serve.handle import DeploymentHandle

from serve_app.clock import Clock, MonotonicClock, sleep_until
from serve_app.leasing.leased_stage import LeasedStage, take_lease
from serve_app.leasing.stage_errors import let_go, stage_errors
from serve_app.leasing.stage_health import StageHealth
from serve_app.logs.log_lines import say, trouble
from serve_app.ports import AppendedRef, Replicas, SpeechRef
from serve_app.tracing.tracer import TraceParent
from session.config import RuntimeConfig, SessionLimits
from session.errors import DuplexError, StageContractBroken, StageUnavailable
from session.fence import Fence
from session.ids import OperationId, SessionId
from session.unit import SpeechChunk, Unit, UnitResult
from stages.descriptor import Descriptor

log = logging.getLogger(__name__)

RENEWALS_PER_TTL: Final = 3
HEALTH_TIMEOUT_S: Final = 5.0
WATCHED_LEASES: Final = 100_000
"""Calls that may wait on the witness at once: two a session."""


class Witness:
    """An actor that a gateway replica owns, so that its death shows the gateway's."""

    async def alive(self) -> None:
        """Never return."""
        await asyncio.Event().wait()


class RayStageSession:
    """Both stages, leased and opened for one session."""

    def __init__(self, stage0: LeasedStage, stage1: LeasedStage) -> None:
        self._stage0 = stage0
        self._stage1 = stage1

    @property
    def replicas(self) -> Replicas:
        """Where the session is held."""
        return Replicas(self._stage0.replica, self._stage1.replica)

    async def append(
        self,
        fence: Fence,
        *,
        seq: int,
        operation_id: OperationId,
        unit: Unit,
        config_generation: int,
        trace: TraceParent | None = None,
    ) -> AppendedRef:
        """Give one unit to Stage0. The speech stays a reference."""
        appending = self._stage0.engine.append_by_value
        result, speech = await self._stage0.call_for_two(
            appending, fence, seq, operation_id, unit, config_generation, trace
        )
        if isinstance(result, DuplexError):
            raise result
        if not isinstance(result, UnitResult):
            raise StageContractBroken(f"stage0 answered with {type(result).__name__}")
        return AppendedRef(result, speech)

    async def speak(
        self, fence: Fence, *, seq: int, speech: SpeechRef, trace: TraceParent | None = None
    ) -> AsyncGenerator[SpeechChunk, None]:
        """Stream a unit's speech from Stage1. Closing the iterator cancels the remote call."""
        chunks = self._stage1.stream(self._stage1.engine.speak, fence, seq, speech, trace)
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            await chunks.aclose()

    async def configure(self, fence: Fence, runtime: RuntimeConfig, generation: int) -> None:
        """Change both stages' settings at the next unit.

        Stage0 first: it keeps the settings of every generation that an append may still name, so
        what Stage1 then refuses has no effect there.
        """
        for half in (self._stage0, self._stage1):
            await half.call(half.engine.configure, fence, runtime, generation)

    async def cancel(self, cancelled: Fence, current: Fence, heard: str, consumed_seq: int) -> None:
        """Advance both doors and stop what the old fence held."""
        await _both(
            half.call(half.engine.cancel, cancelled, current, heard, consumed_seq)
            for half in (self._stage0, self._stage1)
        )

    async def close(self, fence: Fence) -> None:
        """Release both stages; returns when both have confirmed. Retries what failed."""
        await _both(half.close(fence) for half in (self._stage0, self._stage1))

    async def wait_lost(self) -> tuple[str, Exception]:
        """Wait until a lease breaks by itself; return the stage's name and a StageError."""
        halves = {half.lost: half.stage for half in (self._stage0, self._stage1)}
        done, _ = await asyncio.wait(halves, return_when=asyncio.FIRST_COMPLETED)
        first = done.pop()
        return halves[first], first.result()


async def _both(calls: Any) -> None:
    """Make both calls at once and let each end; then raise the first error, if any."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


class RayStageDirectory:
    """The stages of this application. One a gateway process; lives as long as that does."""

    def __init__(
        self,
        stage0: DeploymentHandle[Any],
        stage1: DeploymentHandle[Any],
        descriptor: Descriptor,
        limits: SessionLimits,
        clock: Clock | None = None,
    ) -> None:
        self._handles = {"stage0": stage0, "stage1": stage1}
        self._descriptor = descriptor
        self._limits = limits
        self._clock = clock or MonotonicClock()
        self._leases: dict[LeasedStage, SessionId] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._health = {
            name: StageHealth(name, functools.partial(self._health_of, name))
            for name in self._handles
        }
        self.witness: Any = _new_witness()

    @property
    def descriptor(self) -> Descriptor:
        """The deployed model."""
        return self._descriptor

    async def open(self, fence: Fence, runtime: RuntimeConfig) -> RayStageSession:
        """Lease Stage0, then Stage1, then open both; on any failure give everything back."""
        stage0 = await self._take("stage0", fence)
        taken = [stage0]
        try:
            stage1 = await self._take("stage1", fence)
            taken.append(stage1)
            await _both(half.call(half.engine.open, fence, runtime) for half in taken)
        except DuplexError:
            await self._give_back(taken, fence)
            raise
        except BaseException:
            for half in taken:
                half.give_back()
            raise
        return RayStageSession(stage0, stage1)

    async def health(self) -> dict[str, str]:
        """Answer of each stage: `ok`, or what is wrong."""
        answers = await asyncio.gather(*(health.answer() for health in self._health.values()))
        return dict(zip(self._health, answers, strict=True))

    async def close(self) -> None:
        """Stop renewing, and let the stages end the leases that are still open."""
        for task in self._tasks:
            task.cancel()
        ray.kill(self.witness)

    async def _health_of(self, name: str) -> str:
        response: Any = self._handles[name].health.remote()
        try:
            with stage_errors(name):
                return str(await asyncio.wait_for(response, HEALTH_TIMEOUT_S))
        except DuplexError as error:
            let_go(response)
            return error.message

    async def _give_back(self, taken: list[LeasedStage], fence: Fence) -> None:
        """Close what was taken, so that its slot is free when the client hears of the failure."""
        try:
            async with asyncio.timeout(self._limits.stage_timeout_s):
                await _both(half.close(fence) for half in taken)
        except TimeoutError:
            for half in taken:
                half.give_back()

    async def _take(self, stage: str, fence: Fence) -> LeasedStage:
        leasing = take_lease(
            self._handles[stage],
            fence,
            self.witness,
            self._descriptor,
            timeout_s=self._limits.stage_timeout_s,
        )
        # In a context of its own: a call made in the context of a client's request would be
        # cancelled by Serve together with that request, and the session may outlive its socket.
        half = await asyncio.create_task(  # noqa: TID251 - awaited on the spot
            leasing, context=contextvars.Context()
        )
        self._leases[half] = fence.session_id
        if not self._tasks:
            self._tasks = [
                asyncio.create_task(work)  # noqa: TID251 - run as long as the process
                for work in (self._run_renewals(), self._run_witness())
            ]
        return half

    async def _run_witness(self) -> None:
        """Replace a witness that died by itself; the sessions it stood for have ended."""
        while True:
            try:
                await _answer(self.witness.alive.remote())
            except RayActorError:
                sentence = "the witness of this gateway died; its sessions end, a new one begins"
                say(log, logging.WARNING, sentence)
                self.witness = _new_witness()

    async def _run_renewals(self) -> None:
        period_s = self._limits.lease_ttl_s / RENEWALS_PER_TTL
        while True:
            await sleep_until(self._clock, self._clock.now() + period_s)
            for half in [half for half in self._leases if half.is_closing or half.is_over]:
                del self._leases[half]
            engines: dict[str, list[LeasedStage]] = {}
            for half in self._leases:
                engines.setdefault(half.replica, []).append(half)
            await asyncio.gather(*(self._renew(group, period_s) for group in engines.values()))

    async def _renew(self, group: list[LeasedStage], timeout_s: float) -> None:
        """Renew the leases of one engine, and end those that it does not know any more."""
        named = {self._leases[half]: half for half in group}
        stage = group[0].stage
        try:
            with stage_errors(stage):
                lost = await asyncio.wait_for(_renewal(group[0].engine, list(named)), timeout_s)
        except DuplexError as error:
            # Its streams tell whether the engine is gone; the next round tries again.
            facts = replace(trouble(error, stage=stage), count=len(group))
            say(log, logging.WARNING, "leases could not be renewed", facts=facts)
            return
        for session_id in lost:
            named[session_id].lose(StageUnavailable(f"{stage} lost the session: lease expired"))


def _new_witness() -> Any:
    """Start an actor owned by this process alone: it dies with it, and the stages notice."""
    return ray.remote(Witness).options(num_cpus=0, max_concurrency=WATCHED_LEASES).remote()


async def _answer(ref: Any) -> None:
    await ref


async def _renewal(engine: Any, session_ids: list[SessionId]) -> tuple[SessionId, ...]:
    lost: tuple[SessionId, ...] = await engine.renew.remote(session_ids)
    return lost
