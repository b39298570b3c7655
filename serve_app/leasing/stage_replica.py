"""One replica of a stage: it owns one engine and leases it to sessions.

Rule 1: a lease is one streaming call; while it is open, Serve counts the session.
Rule 2: a lease ends with its session, with its gateway's process (the witness) or with the engine;
        its last item says which. Ray tells a callee nothing about the death of its caller.
Rule 3: the engine is a child in the replica's placement group and dies with the replica; a replica
        whose engine is dead fails its health check, so that Serve replaces both.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final

import ray
from ray import serve
from ray.exceptions import RayActorError, RayError

from serve_app.leasing.engine_actor import Stage0Actor, Stage1Actor
from serve_app.leasing.lease import LeaseEnd, LeaseEnded, LeaseGranted, LeaseItem, LeaseRefused
from serve_app.leasing.stage_plan import StagePlan
from serve_app.logs.process_logs import set_up
from session.errors import DuplexError, StageContractBroken, StageUnavailable
from session.ids import SessionId
from stages.descriptor import Descriptor

ACTORS: Final = {"stage0": Stage0Actor, "stage1": Stage1Actor}
CALLS_PER_SESSION: Final = 8
"""Calls of one session that an engine may have open at once: its lease and what it asks for."""
SPARE_CALLS: Final = 64


class StageReplica:
    """One replica of a stage."""

    def __init__(self, plan: StagePlan) -> None:
        set_up(plan.logs, plan.stage)
        self._plan = plan
        self._name = serve.get_replica_context().replica_id.unique_id
        self._engine = _start_engine(plan)
        self._started = self._engine.start.remote()

    async def lease(
        self, session_id: SessionId, incarnation: int, witness: Any, descriptor: Descriptor
    ) -> AsyncGenerator[LeaseItem, None]:
        """Lease the engine to a session for as long as the stream is open."""
        if descriptor != self._plan.descriptor:
            yield self._refuse(_contract_error(self._plan.descriptor, descriptor))
            return
        held = self._engine.hold.options(num_returns="streaming").remote(session_id, incarnation)
        try:
            refusal = await self._admission(held)
            if refusal is not None:
                yield self._refuse(refusal)
                return
            yield LeaseGranted(self._engine, self._plan.stage, descriptor, self._name)
            end = await _end_of(held, witness)
            yield LeaseEnded(end)
            if end is not LeaseEnd.GATEWAY_LOST:  # else nobody listens, and leaving ends it
                await _release_of(held)
        finally:
            ray.cancel(held)

    async def check_health(self) -> None:
        """Raise when the engine is not ready or dead. The first check waits until it is warm."""
        await self._started
        answer = await self._engine.health.remote()
        if answer != "ok":
            raise RuntimeError(f"{self._plan.stage}: {answer}")

    async def health(self) -> str:
        """Return `ok`, or what is wrong."""
        try:
            return str(await self._engine.health.remote())
        except RayActorError:
            return "the engine is gone"

    async def sessions_held(self) -> int:
        """Return how many sessions have a slot of the engine, for who waits until all have left."""
        held: int = await self._engine.sessions_held.remote()
        return held

    async def _admission(self, held: Any) -> DuplexError | None:
        """Return why the engine does not admit the session, or None."""
        try:
            refusal: DuplexError | None = await (await anext(held))
        except RayActorError:
            return StageUnavailable(f"the engine of {self._plan.stage} is gone")
        return refusal

    def _refuse(self, error: DuplexError) -> LeaseRefused:
        return LeaseRefused(error, self._name)


def _start_engine(plan: StagePlan) -> Any:
    actor = ray.remote(ACTORS[plan.stage]).options(
        num_cpus=plan.num_cpus,
        num_gpus=plan.num_gpus,
        resources=dict(plan.resources),
        max_concurrency=CALLS_PER_SESSION * plan.limits.max_sessions + SPARE_CALLS,
    )
    return actor.remote(plan)


def _contract_error(ours: Descriptor, theirs: Descriptor) -> StageContractBroken:
    return StageContractBroken(
        f"the stage runs {ours.model_id} with contract {ours.contract_version}, "
        f"the gateway expects {theirs.model_id} with contract {theirs.contract_version}"
    )


async def _end_of(held: Any, witness: Any) -> LeaseEnd:
    """Wait until the engine says that the lease is over, or a process dies."""
    watched = witness.alive.remote()
    over = asyncio.ensure_future(_last_of(held))
    widowed = asyncio.ensure_future(_death_of(watched))
    try:
        await asyncio.wait({over, widowed}, return_when=asyncio.FIRST_COMPLETED)
        return over.result() if over.done() else LeaseEnd.GATEWAY_LOST
    finally:
        over.cancel()
        widowed.cancel()
        ray.cancel(watched)


async def _last_of(held: Any) -> LeaseEnd:
    try:
        end: LeaseEnd = await (await anext(held))
    except RayActorError:
        return LeaseEnd.ENGINE_LOST
    return end


async def _release_of(held: Any) -> None:
    """Wait until the engine has released the session, which a dead one has."""
    try:
        async for _ in held:
            pass
    except RayActorError:
        return


async def _death_of(watched: Any) -> None:
    try:
        await watched
    except RayError:
        return
