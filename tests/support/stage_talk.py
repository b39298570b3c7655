"""Sessions at a deployed scripted model over Ray, as a gateway would drive them."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from serve_app.leasing.leased_stage import LeasedStage, take_lease
from serve_app.leasing.stage_client import RayStageDirectory, RayStageSession
from session.config import RuntimeConfig, SessionLimits
from session.errors import AdmissionRefused, StageRefused, StageUnavailable
from session.fence import Fence
from session.ids import OperationId, SessionId
from session.unit import SpeechChunk, Unit
from stages.descriptor import Descriptor
from stages.scripted.plugin import PLUGIN
from tests.support.serve_cluster import ServeCluster

HANGS = 3
"""Number of the unit on which the script hangs."""
SILENCE = Unit(pcm=bytes(32_000))
QUESTION = Unit(pcm=b"", text="hello")
names = (SessionId(f"sess_{number}") for number in itertools.count())


class Talk:
    """One session over Ray."""

    def __init__(self, stages: RayStageSession, fence: Fence) -> None:
        self.stages = stages
        self.fence = fence
        self.seq = 0

    async def append(self, unit: Unit = SILENCE, generation: int = 0) -> Any:
        """Give one unit to Stage0."""
        self.seq += 1
        return await self.stages.append(
            self.fence,
            seq=self.seq,
            operation_id=OperationId(f"op_{self.fence.epoch}_{self.seq}"),
            unit=unit,
            config_generation=generation,
        )

    async def reach_the_hang(self) -> "asyncio.Task[Any]":
        """Submit units until one hangs at the stage, and return that call."""
        while self.seq < HANGS - 1:
            await self.append()
        hanging = asyncio.ensure_future(self.append())
        await self._expect_busy(HANGS + 1)
        return hanging

    async def _expect_busy(self, next_seq: int) -> None:
        """Wait until a unit is inside the stage, which then refuses the next one.

        A question that overtakes the unit is refused as out of order; the test's time limit is the
        bound.
        """
        while True:
            with pytest.raises(StageRefused, match=r"still running|out of order") as refusal:
                await self.stages.append(
                    self.fence,
                    seq=next_seq,
                    operation_id=OperationId("op_busy"),
                    unit=SILENCE,
                    config_generation=0,
                )
            if "still running" in str(refusal.value):
                return
            await asyncio.sleep(0.01)

    async def cancel(self) -> None:
        """Enter the next epoch at both stages."""
        cancelled, self.fence = self.fence, self.fence.next_epoch()
        await self.stages.cancel(cancelled, self.fence, "", consumed_seq=self.seq)
        self.seq = 0

    async def close(self) -> None:
        """Release both stages."""
        await self.stages.close(self.fence)


class Service:
    """The deployed application as these tests see it."""

    def __init__(
        self,
        cluster: ServeCluster,
        limits: SessionLimits,
        settings: Mapping[str, Any],
        replicas: int = 1,
        scaling: Mapping[str, Any] | None = None,
    ) -> None:
        """Deploy the scripted model with these limits and settings.

        With `scaling`, which is Serve's autoscaling_config, the number of replicas is Serve's.
        """
        changed = {
            name: getattr(limits, name)
            for name in ("max_sessions", "lease_ttl_s", "reaper_interval_s")
        }
        cluster.deploy(
            "scripted.yaml",
            {"limits": changed, "model_settings": dict(settings)},
            None if scaling else {"Stage0": replicas, "Stage1": replicas},
            {"Stage0": scaling, "Stage1": scaling} if scaling else None,
        )
        self.limits = limits
        self.handles = {name: cluster.stage(name) for name in ("Stage0", "Stage1")}

    def directory(self, limits: SessionLimits | None = None) -> RayStageDirectory:
        """Return a gateway's way to the stages, owned by this process."""
        return self.directory_for(PLUGIN.descriptor, limits or self.limits)

    def directory_for(self, descriptor: Descriptor, limits: SessionLimits) -> RayStageDirectory:
        """Return the way of a gateway that expects a certain model."""
        return RayStageDirectory(self.handles["Stage0"], self.handles["Stage1"], descriptor, limits)

    async def slots_taken(self) -> list[int]:
        """Return how many slots each stage has given out."""
        return [await handle.sessions_held.remote() for handle in self.handles.values()]

    async def until_free(self) -> None:
        """Wait until no slot is taken any more; the test's time limit is the bound."""
        while await self.slots_taken() != [0, 0]:  # noqa: ASYNC110 - no event crosses the process
            await asyncio.sleep(0.05)

    async def until_it_opens(self, directory: RayStageDirectory) -> Talk:
        """Open a session as soon as the stages let one in again."""
        while True:
            try:
                return await begin(directory)
            except (StageUnavailable, AdmissionRefused):
                await asyncio.sleep(0.1)

    async def lease(self, name: str, directory: RayStageDirectory) -> LeasedStage:
        """Lease one stage by hand, without a session in it."""
        return await take_lease(
            self.handles[name],
            Fence(next(names), 0, 0, 0),
            directory.witness,
            PLUGIN.descriptor,
            timeout_s=self.limits.stage_timeout_s,
        )


async def begin(directory: RayStageDirectory, runtime: RuntimeConfig | None = None) -> Talk:
    """Open a session."""
    fence = Fence(next(names), 0, 0, 0)
    return Talk(await directory.open(fence, runtime or RuntimeConfig()), fence)


async def collect(chunks: AsyncIterator[SpeechChunk]) -> list[SpeechChunk]:
    """Return all chunks of a stream."""
    return [chunk async for chunk in chunks]
