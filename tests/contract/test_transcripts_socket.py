"""The golden transcripts against the gateway on a local socket, with the stages in this process."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from session.config import SessionLimits
from tests.contract.marks import on_sockets
from tests.contract.player import Player
from tests.contract.scripts import SCRIPT
from tests.contract.stages_on_sockets import SocketStage
from tests.contract.transcript import Json, Transcript
from tests.fakes.server import Service, serving
from tests.fakes.stages import ScriptedDirectory

MAX_SESSIONS = 64
"""A session whose client is gone keeps its slot for a while."""


class Started:
    """One gateway at a time: what has the same limits is played on the same one."""

    def __init__(self) -> None:
        self._limits: Json | None = None
        self._running = AsyncExitStack()
        self._service: Service | None = None

    async def address(self, limits: Json) -> str:
        """Return where a gateway with these limits is."""
        if self._service is None or limits != self._limits:
            await self.end()
            directory = ScriptedDirectory(max_sessions=MAX_SESSIONS, **SCRIPT)
            running = serving(directory, limits=SessionLimits(**limits))
            self._service = await self._running.enter_async_context(running)
            self._limits = limits
        return f"127.0.0.1:{self._service.port}"

    async def end(self) -> None:
        """End the gateway, and show that it holds nothing."""
        await self._running.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def started() -> AsyncIterator[Started]:
    started = Started()
    yield started
    await started.end()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("transcript", on_sockets())
async def test_transcript(started: Started, transcript: Transcript) -> None:
    async with SocketStage(await started.address(transcript.limits)) as stage:
        await Player(stage, transcript).play()
