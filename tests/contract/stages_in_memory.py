"""The gateway's session code on sockets in memory, in virtual time, with the scripted model."""

import asyncio
import json
from dataclasses import dataclass
from urllib.parse import parse_qsl

from serve_app.access.key_ring import KeyRing
from serve_app.access.quota_desk import QuotaDesk
from serve_app.dialects import KITS, Dialect
from serve_app.gateway.connection import Connection
from serve_app.gateway.socket_query import read_query
from serve_app.metrics.timings import GatewayTimings
from serve_app.sessions.open_sessions import OpenSessions
from serve_app.sessions.session_actor import World
from serve_app.sessions.session_host import SessionHost
from session.config import SessionLimits
from session.errors import StageFailed, StageTimeout, StageUnavailable
from session.realtime.facts import ServerFacts
from tests.contract.scripts import SCRIPT
from tests.contract.transcript import Json, Transcript
from tests.contract.virtual_time import VirtualClock
from tests.fakes.ids import SeqIds
from tests.fakes.scorer import open_energy_scorer
from tests.fakes.socket import MemorySocket
from tests.fakes.stages import ScriptedDirectory

MOMENT_S = 0.001
"""Between two lines of a transcript that name no time."""
PATIENCE_S = 1000.0
"""Virtual: so long may a transcript wait for the next event."""
_FAULTS = {
    "stage_failed": StageFailed("told to fail"),
    "stage_timeout": StageTimeout("told to take too long"),
    "stage_unavailable": StageUnavailable("told to be away"),
}


class ListeningSocket(MemorySocket):
    """A socket in memory that puts events, and its own end, into one queue."""

    def __init__(self) -> None:
        super().__init__()
        self.events: asyncio.Queue[Json] = asyncio.Queue()

    async def send(self, text: str) -> None:
        """Take an event."""
        await super().send(text)
        self.events.put_nowait(json.loads(text))

    async def close(self, code: int, reason: str) -> None:
        """Take the end."""
        await super().close(code, reason)
        self.events.put_nowait({"type": "closed", "code": code, "reason": reason})
        self.vanish()


@dataclass
class MemoryLine:
    """Implements `tests.contract.player.Line`."""

    socket: ListeningSocket

    async def say(self, text: str) -> None:
        """Send a frame."""
        self.socket.say(text)

    async def hear(self) -> Json:
        """Wait for the next event."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.socket.events.get()

    async def unread(self) -> list[Json]:
        """Return what has come."""
        return [self.socket.events.get_nowait() for _ in range(self.socket.events.qsize())]

    async def vanish(self) -> None:
        """Break the connection."""
        self.socket.vanish()

    async def stall(self) -> None:
        """Read nothing from now on."""
        self.socket.stop_reading()

    async def read_again(self) -> None:
        """Read what has come, and go on."""
        self.socket.read_again()


class MemoryStage:
    """Implements `tests.contract.player.Stage`."""

    def __init__(self, transcript: Transcript) -> None:
        self.limits = SessionLimits(**transcript.limits)
        self.directory = ScriptedDirectory(max_sessions=self.limits.max_sessions, **SCRIPT)
        self.sessions = OpenSessions()
        self._kit = KITS[Dialect(transcript.dialect)]
        self._host = self._make_host()
        self._tasks: set[asyncio.Task[None]] = set()

    async def connect(self, target: str) -> MemoryLine:
        """Open a socket."""
        socket, query = ListeningSocket(), target.partition("?")[2]
        connection = Connection(socket, read_query(dict(parse_qsl(query))), self._host)
        task = asyncio.create_task(connection.run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return MemoryLine(socket)

    async def until(self, at_s: float) -> None:
        """Let time pass."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(at_s - loop.time())

    async def settle(self) -> None:
        """Let a moment pass: time stands still until nobody has anything left to do."""
        await asyncio.sleep(MOMENT_S)

    def now(self) -> float:
        """Virtual time."""
        return asyncio.get_running_loop().time()

    async def direct(self, directive: Json) -> None:
        """Hold, release or fail a call of the stages, lose one of them, or drain the server."""
        match directive:
            case {"hold": name}:
                self.directory.knobs.hold(name)
            case {"release": name}:
                self.directory.knobs.release(name)
            case {"fail": name, "with": fault}:
                self.directory.knobs.fail_next(name, _FAULTS[fault])
            case {"drain": None}:
                self.sessions.stay()
            case {"drain": within_s}:
                self.sessions.drain(self.now() + within_s)
            case {"lose": name}:
                self.directory.opened[-1].lose(name, StageUnavailable(f"{name} is gone"))
            case _:
                raise AssertionError(f"no such directive: {directive}")

    async def end(self) -> None:
        """Hang up, and show that nothing is left: no session, no timer, nothing at the stages."""
        for task in list(self._tasks):
            task.cancel()
        await self.sessions.wait_idle()
        assert self.directory.open_sessions == self.directory.bound_sessions == 0

    def _make_host(self) -> SessionHost:
        descriptor = self.directory.descriptor
        facts = ServerFacts(
            model_id=descriptor.model_id,
            profile=descriptor.profile,
            max_sessions=self.limits.max_sessions,
            limits=self.limits,
        )
        world = World(
            self.directory, VirtualClock(), self.limits, open_energy_scorer, GatewayTimings()
        )
        defaults = self._kit.defaults(descriptor.model_id, descriptor.profile)
        desk = QuotaDesk(KeyRing(), self.sessions.held_by, self.limits, world.clock)
        return SessionHost(world, defaults, facts, SeqIds(), self.sessions, desk, self._kit)
