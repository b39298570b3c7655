"""A session actor on fakes, and words to drive it with."""

import asyncio
from dataclasses import replace
from types import TracebackType
from typing import Self, TypeVar

from serve_app.outbound import Outbound
from serve_app.session_actor import SessionActor, World
from serve_app.timings import GatewayTimings
from session.config import SessionConfig, SessionLimits, default_config
from session.effects import CloseSocket, Effect
from session.events import Event
from session.fence import Fence
from session.ids import IdFactory, SessionId
from session.machine import DuplexSession
from session.model_profile import ModelProfile
from session.realtime.commands import AudioReceived, Command
from session.stimuli import CloseRequested, OpenRequested, SocketLost, Stimulus
from session.unit import INPUT_RATE_HZ
from stages.scripted.plugin import PLUGIN
from tests.fakes.clock import FakeClock
from tests.fakes.ids import SeqIds
from tests.fakes.scorer import open_energy_scorer
from tests.fakes.stages import ScriptedDirectory

WAIT_S = 5.0
"""Only a test that has gone wrong ever waits so long."""
EventT = TypeVar("EventT", bound=Event)
ContentT = TypeVar("ContentT", bound=Event | CloseSocket)


class RecordingSession(DuplexSession):
    """The real kernel, which remembers what it was told; breaks at one kind when told to."""

    def __init__(
        self,
        *,
        fence: Fence,
        config: SessionConfig,
        limits: SessionLimits,
        profile: ModelProfile,
        ids: IdFactory,
    ) -> None:
        super().__init__(fence=fence, config=config, limits=limits, profile=profile, ids=ids)
        self.handled: list[Stimulus] = []
        self.breaks_at: type[Stimulus] | None = None

    def handle(self, stimulus: Stimulus, *, now: float) -> list[Effect]:
        """Note the stimulus and apply it."""
        self.handled.append(stimulus)
        if self.breaks_at is not None and isinstance(stimulus, self.breaks_at):
            raise RuntimeError(f"told to break at {self.breaks_at.__name__}")
        effects = super().handle(stimulus, now=now)
        self.validate()
        return effects


class Rig:
    """One running session: post to it, and read what it would send."""

    def __init__(
        self,
        directory: ScriptedDirectory,
        *,
        session_id: str = "sess_1",
        config: SessionConfig | None = None,
        limits: SessionLimits | None = None,
    ) -> None:
        self.directory = directory
        self.knobs = directory.knobs
        self.clock = FakeClock()
        self.limits = limits or SessionLimits()
        self.outbound = Outbound(self.limits.max_output_bytes_per_session)
        descriptor = directory.descriptor
        self.session = RecordingSession(
            fence=Fence(SessionId(session_id), 0, 0, 0),
            config=config or default_config(descriptor.model_id, descriptor.profile),
            limits=self.limits,
            profile=descriptor.profile,
            ids=SeqIds(),
        )
        self.world = World(directory, self.clock, self.limits, open_energy_scorer, GatewayTimings())
        self.actor = SessionActor(self.session, world=self.world, outbound=self.outbound)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.actor.run())
        self.post(OpenRequested())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._task is not None and not self._task.done():
            if error is None:
                self.post(SocketLost())
                await self.ended()
            else:
                self._task.cancel()
        if error is None:
            assert self.clock.pending == 0

    def post(self, *contents: Command | Stimulus) -> None:
        """Put things in the mailbox, in order."""
        for content in contents:
            self.actor.post(content)

    async def next(self) -> Event | CloseSocket:
        """Take the next thing that would be sent."""
        async with asyncio.timeout(WAIT_S):
            outgoing = await self.outbound.take()
        self.outbound.sent(outgoing)
        return outgoing.content

    async def until(self, kind: type[ContentT]) -> ContentT:
        """Read on to the first of a kind and return it."""
        while not isinstance(content := await self.next(), kind):
            pass
        return content

    async def read_until(self, kind: type[ContentT]) -> list[Event | CloseSocket]:
        """Read on to the first of a kind; return all that was read, it included."""
        read = [await self.next()]
        while not isinstance(read[-1], kind):
            read.append(await self.next())
        return read

    async def close(self) -> list[Event | CloseSocket]:
        """Close the session; return what it still said."""
        self.post(CloseRequested())
        said = await self.read_until(CloseSocket)
        await self.ended()
        return said

    async def ended(self) -> None:
        """Wait until the session is over."""
        assert self._task is not None
        async with asyncio.timeout(WAIT_S):
            await self._task

    def handled(self, *kinds: type[Stimulus]) -> list[Stimulus]:
        """Return what the kernel was told, of these kinds."""
        return [told for told in self.session.handled if isinstance(told, kinds)]


async def settle() -> None:
    """Let everything that can run now run; for showing that something does not happen."""
    for _ in range(50):
        await asyncio.sleep(0)


def audio(ms: int, *, loud: bool = True, event_id: str | None = None) -> AudioReceived:
    """Return an append of 16 kHz PCM: a loud square wave, or silence."""
    pair = b"\x00\x20\x00\xe0" if loud else b"\x00\x00\x00\x00"
    pcm = pair * (ms * INPUT_RATE_HZ // 2000)
    return AudioReceived(data=pcm, format=None, wire_bytes=len(pcm) * 4 // 3, event_id=event_id)


def config(**changes: object) -> SessionConfig:
    """Return settings of a session in which the model speaks on its own."""
    descriptor = PLUGIN.descriptor
    base = default_config(descriptor.model_id, descriptor.profile)
    return replace(base, auto_response=True, **changes)  # type: ignore[arg-type]  # a test's own


def names(said: list[Event | CloseSocket]) -> list[str]:
    """Return the kinds of what was said."""
    return [type(event).__name__ for event in said]


def events_of(kind: type[EventT], said: list[Event | CloseSocket]) -> list[EventT]:
    """Return what was said of one kind."""
    return [event for event in said if isinstance(event, kind)]
