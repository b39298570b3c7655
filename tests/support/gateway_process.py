"""A gateway's share of Ray in a process of its own: tests kill it, or cancel its requests."""

import asyncio
from typing import Any

from serve_app.leasing.stage_client import RayStageDirectory, RayStageSession
from session.config import RuntimeConfig, SessionLimits
from session.fence import Fence
from session.ids import OperationId
from session.unit import Unit, UnitResult
from stages.descriptor import Descriptor


class GatewayProcess:
    """Opens sessions at the stages and keeps them; an actor or a deployment."""

    def __init__(
        self, stage0: Any, stage1: Any, descriptor: Descriptor, limits: SessionLimits
    ) -> None:
        self._arguments = (stage0, stage1, descriptor, limits)
        self._sessions: list[RayStageSession] = []
        self._directory: RayStageDirectory | None = None

    async def open(self, fence: Fence) -> None:
        """Open a session and keep it."""
        if self._directory is None:
            self._directory = RayStageDirectory(*self._arguments)
        self._sessions.append(await self._directory.open(fence, RuntimeConfig()))

    async def open_and_stay(self, fence: Fence) -> None:
        """Open a session as a request that lasts until it is cancelled."""
        await self.open(fence)
        await asyncio.Event().wait()

    async def opened(self) -> int:
        """Return how many sessions have been opened."""
        return len(self._sessions)

    async def append(self, fence: Fence, seq: int) -> UnitResult:
        """Use the session that was opened last."""
        appended = await self._sessions[-1].append(
            fence,
            seq=seq,
            operation_id=OperationId(f"op_{seq}"),
            unit=Unit(bytes(32_000)),
            config_generation=0,
        )
        return appended.result
