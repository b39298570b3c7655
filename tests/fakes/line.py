"""Connections of one gateway on sockets in memory, and the test at the other end."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from serve_app.access.key_ring import KeyRing
from serve_app.access.quota_desk import QuotaDesk
from serve_app.dialects import DUPLEX, DialectKit
from serve_app.gateway.connection import Connection
from serve_app.gateway.socket_query import Query
from serve_app.metrics.timings import GatewayTimings
from serve_app.sessions.open_sessions import OpenSessions
from serve_app.sessions.session_actor import World
from serve_app.sessions.session_host import SessionHost
from session.config import SessionLimits
from session.realtime.facts import ServerFacts
from tests.fakes.clock import FakeClock
from tests.fakes.ids import SeqIds
from tests.fakes.meter import CountedMeter
from tests.fakes.rig import WAIT_S, settle
from tests.fakes.scorer import open_energy_scorer
from tests.fakes.socket import MemorySocket
from tests.fakes.stages import ScriptedDirectory

NO_RESUME = SessionLimits(disconnect_grace_s=0)
"""A client that hangs up does not come back, so that its session ends with its socket."""


@dataclass
class Line:
    """A connection on a socket in memory, and the test at the other end."""

    directory: ScriptedDirectory
    limits: SessionLimits = NO_RESUME
    query: Query = field(default_factory=lambda: Query(None, autostarts=True))
    socket: MemorySocket = field(default_factory=MemorySocket)
    clock: FakeClock = field(default_factory=FakeClock)
    ids: SeqIds = field(default_factory=SeqIds)
    sessions: OpenSessions = field(default_factory=OpenSessions)
    kit: DialectKit = DUPLEX
    meter: CountedMeter = field(default_factory=CountedMeter)
    task: asyncio.Task[None] | None = None

    def dial(self) -> None:
        """Connect."""
        self.task = asyncio.create_task(Connection(self.socket, self.query, self.host()).run())

    def another(self) -> "Line":
        """Dial the same gateway on another socket."""
        line = Line(
            self.directory,
            self.limits,
            clock=self.clock,
            ids=self.ids,
            sessions=self.sessions,
            meter=self.meter,
        )
        line.dial()
        return line

    def host(self) -> SessionHost:
        """Return what the gateway would give."""
        descriptor = self.directory.descriptor
        facts = ServerFacts(
            model_id=descriptor.model_id,
            profile=descriptor.profile,
            max_sessions=1,
            limits=self.limits,
            supports_resume=self.limits.disconnect_grace_s > 0,
        )
        world = World(
            self.directory,
            self.clock,
            self.limits,
            open_energy_scorer,
            GatewayTimings(self.meter),
            self.meter,
        )
        defaults = self.kit.defaults(descriptor.model_id, descriptor.profile)
        desk = QuotaDesk(KeyRing(), self.sessions.held_by, self.limits, self.clock)
        return SessionHost(world, defaults, facts, self.ids, self.sessions, desk, self.kit)

    async def hear(self) -> dict[str, Any]:
        """Wait for the server's next event."""
        event: dict[str, Any] = json.loads(await self.socket.hear())
        return event

    async def until(self, kind: str) -> list[dict[str, Any]]:
        """Read on to the first event of a type; return all that was read."""
        read = [await self.hear()]
        while read[-1]["type"] != kind:
            read.append(await self.hear())
        return read

    async def ended(self) -> None:
        """Wait until the handler has returned and every session is over."""
        assert self.task is not None
        async with asyncio.timeout(WAIT_S):
            await asyncio.wait({self.task})
            while len(self.sessions):
                await settle()

    async def hung_up(self) -> None:
        """Wait until the handler has returned."""
        assert self.task is not None
        async with asyncio.timeout(WAIT_S):
            await asyncio.wait({self.task})


@asynccontextmanager
async def dialled(directory: ScriptedDirectory, **about: Any) -> AsyncIterator[Line]:
    """Open a line; at the end hang up, and show that nothing was left behind."""
    line = Line(directory, **about)
    line.dial()
    yield line
    line.socket.vanish()
    await line.hung_up()
    await settle()
    line.clock.advance(line.limits.disconnect_grace_s)
    await line.ended()
    assert directory.open_sessions == directory.bound_sessions == 0
    assert line.clock.pending == 0
    assert line.socket.most_sending_at_once <= 1
