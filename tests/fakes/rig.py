"""A session actor on fakes, and words to drive it with."""

import asyncio
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self, TypeVar

from serve_app.dialects import Dialect
from serve_app.logs.session_story import Caller
from serve_app.metrics.timings import GatewayTimings
from serve_app.sessions.session_actor import SessionActor, World
from session.config import SessionConfig, SessionLimits, default_config
from session.effects import CloseSocket, Effect
from session.events import Event, SessionCreated
from session.fence import Fence
from session.ids import AttachmentId, IdFactory, SessionId
from session.machine import DuplexSession
from session.model_profile import ModelProfile
from session.outbox import Frame, Outbox
from session.realtime.commands import AudioReceived, Command
from session.socket_events import ResyncRequired, SessionReplaced, SessionResumed
from session.socket_stimuli import FIRST_ATTACHMENT, SocketLost
from session.stimuli import (
    CloseRequested,
    OpenRequested,
    Received,
    Stimulus,
)
from session.unit import INPUT_RATE_HZ
from stages.scripted.plugin import PLUGIN
from tests.fakes.clock import FakeClock
from tests.fakes.ids import SeqIds
from tests.fakes.meter import CountedMeter
from tests.fakes.scorer import open_energy_scorer
from tests.fakes.stages import ScriptedDirectory

WAIT_S = 15.0
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
        told = stimulus.command if isinstance(stimulus, Received) else stimulus
        self.handled.append(told)
        if self.breaks_at is not None and isinstance(told, self.breaks_at):
            raise RuntimeError(f"told to break at {self.breaks_at.__name__}")
        effects = super().handle(stimulus, now=now)
        self.validate()
        return effects


@dataclass(frozen=True)
class Echo:
    """A wire event that is the kernel's own."""

    event: Event
    written: dict[str, Event]

    @property
    def is_journaled(self) -> bool:
        """As the duplex dialect has it."""
        plain = SessionCreated | SessionResumed | SessionReplaced | ResyncRequired
        return not isinstance(self.event, plain)

    def to_text(self, event_id: str, server_event_seq: int | None = None) -> str:
        """Return the id, under which the event is found again."""
        del server_event_seq
        self.written[event_id] = self.event
        return event_id


class EchoProjector:
    """A dialect whose wire events are the kernel's events, so that tests can compare values."""

    def __init__(self) -> None:
        self.written: dict[str, Event] = {}

    def project(self, event: Event) -> list[Echo]:
        """Return the event itself."""
        return [Echo(event, self.written)]

    def heard(self, item: Frame | CloseSocket) -> Event | CloseSocket:
        """Return what a frame stands for."""
        return item if isinstance(item, CloseSocket) else self.written[item.text]


class Rig:
    """One running session: post to it, and read what it would send."""

    def __init__(
        self,
        directory: ScriptedDirectory,
        *,
        session_id: str = "sess_1",
        config: SessionConfig | None = None,
        limits: SessionLimits | None = None,
        is_resumable: bool = False,
    ) -> None:
        self.directory = directory
        self.knobs = directory.knobs
        self.clock = FakeClock()
        self.limits = limits or SessionLimits()
        descriptor = directory.descriptor
        self.session = RecordingSession(
            fence=Fence(SessionId(session_id), 0, 0, 0),
            config=config or default_config(descriptor.model_id, descriptor.profile),
            limits=self.limits,
            profile=descriptor.profile,
            ids=SeqIds(),
        )
        self.meter = CountedMeter()
        self.world = World(
            directory,
            self.clock,
            self.limits,
            open_energy_scorer,
            GatewayTimings(self.meter),
            self.meter,
        )
        self.echo = EchoProjector()
        outbox = Outbox(
            self.echo,
            ids=SeqIds(),
            limits=self.limits,
            attachment=FIRST_ATTACHMENT,
            keeps_journal=is_resumable,
        )
        self.record = self.world.records.begin(
            self.session.fence,
            Caller(Dialect.DUPLEX.value, "tester"),
            since_unix_s=1_700_000_000,
            now=self.clock.now(),
        )
        self.actor = SessionActor(
            self.session,
            world=self.world,
            open_stages=directory.open,
            outbox=outbox,
            record=self.record,
        )
        self.opening = OpenRequested(is_resumable=is_resumable)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.actor.run())
        self.post(self.opening)
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
            is_own = isinstance(content, OpenRequested | SocketLost)
            self.actor.post(content, attachment=None if is_own else FIRST_ATTACHMENT)

    async def next(self, attachment: AttachmentId = FIRST_ATTACHMENT) -> Event | CloseSocket:
        """Take the next thing that would be sent."""
        async with asyncio.timeout(WAIT_S):
            item = await self.actor.outbound.next(attachment)
        assert item is not None, "nothing more will be said"
        return self.echo.heard(item)

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
