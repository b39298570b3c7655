"""A gateway's share of Ray in a process of its own, for tests that kill it."""

from typing import Any

from serve_app.stage_client import RayStageDirectory, RayStageSession
from session.config import RuntimeConfig, SessionLimits
from session.fence import Fence
from stages.descriptor import Descriptor


class GatewayProcess:
    """An actor that opens sessions at the stages."""

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
