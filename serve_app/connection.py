"""One socket: a reader that is always listening, a writer that only writes, and the opening.

Rule 1: the reader turns one frame into one command and posts it; it never waits for anything else.
Rule 2: only the writer sends. It drops streaming output whose fence is stale by now, projects the
        rest and sends it, and nothing more.
Rule 3: however a socket ends, the session hears of it at once.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from serve_app.audio_codec import OutputEncoder
from serve_app.clock import Timer
from serve_app.outbound import Outbound, Outgoing
from serve_app.session_actor import SessionActor, World, no_resume
from session.config import AudioFormat, ConfigPatch, SessionConfig
from session.effects import CloseSocket
from session.errors import DuplexError, MalformedEvent, UnsupportedOption
from session.events import ErrorRaised, Event, SpeechDelta, output_fence
from session.fence import FenceVerdict
from session.realtime.commands import Command, EventAcked, ResumeRequested
from session.realtime.decode import decode, refuse_binary
from session.stimuli import (
    CloseRequested,
    EventRefused,
    OpenRequested,
    SessionConfigured,
    SocketLost,
)

STUCK_AFTER_S: Final = 5.0
"""A client that has not read the last events of a session that is over gets no more time."""
MAX_REASON_BYTES: Final = 123
"""A close frame holds no longer reason (RFC 6455, 5.5)."""


class SocketGone(Exception):
    """The peer can not be sent to any more."""


class Socket(Protocol):
    """An accepted WebSocket."""

    async def receive(self) -> str | bytes | None:
        """Wait for one frame; None when the client is gone."""
        ...

    async def send(self, text: str) -> None:
        """Send one text frame, waiting while the client does not read; raise SocketGone."""
        ...

    async def close(self, code: int, reason: str) -> None:
        """Say why, and close; raise SocketGone."""
        ...


class Projector(Protocol):
    """Turns an event into what goes over the wire."""

    def project(self, event: Event) -> list[str]:
        """Return the event's JSON texts in wire order."""
        ...


Encode = Callable[[bytes, AudioFormat], bytes]


@dataclass(frozen=True, slots=True)
class Query:
    """What a client asks for in the socket's URL."""

    model: str | None
    autostarts: bool
    """Whether the session may begin with default settings before the client says any."""


@dataclass(frozen=True, slots=True)
class Host:
    """What a connection gets from the gateway."""

    world: World
    defaults: SessionConfig
    make_projector: Callable[[Encode], Projector]
    begin: Callable[[SessionConfig, Outbound, Callable[[], None]], SessionActor]
    """Starts a session and returns it; the last argument is called when the session is over."""


def read_query(params: Mapping[str, str]) -> Query:
    """Read the socket's query parameters."""
    autostart = params.get("autostart", "").lower() not in _OFF
    resumes = params.get("resume", "").lower() in _ON
    return Query(model=params.get("model"), autostarts=autostart and not resumes)


def is_on(value: str | None) -> bool:
    """Whether a query parameter switches something on."""
    return (value or "").lower() in _ON


class Connection:
    """Runs one accepted socket until either side ends it."""

    def __init__(self, socket: Socket, query: Query, host: Host) -> None:
        self._socket = socket
        self._query = query
        self._host = host
        self._clock = host.world.clock
        self._outbound = Outbound(host.world.limits.max_output_bytes_per_session)
        self._encoder = OutputEncoder()
        self._projector = host.make_projector(self._encoder.encode)
        self._actor: SessionActor | None = None
        self._timer: Timer | None = None
        self._is_closing = False
        self._stuck = asyncio.Event()

    async def run(self) -> None:
        """Serve the socket; on return, or on cancellation, the session knows that it is gone."""
        try:
            self._open_or_wait()
            async with asyncio.TaskGroup() as group:
                parts = [
                    group.create_task(self._run_reader()),
                    group.create_task(self._run_writer()),
                    group.create_task(self._give_up_when_stuck()),
                ]
                await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
                for part in parts:
                    part.cancel()
        finally:
            # Nothing here waits, so that a handler that is being cancelled can not skip it.
            self._hang_up()

    # --- in -----------------------------------------------------------------------------------

    async def _run_reader(self) -> None:
        max_bytes = self._host.world.limits.max_event_bytes
        while (frame := await self._socket.receive()) is not None:
            # Frames that have come already would otherwise be taken without a break.
            await asyncio.sleep(0)
            if self._is_closing:
                continue
            if isinstance(frame, bytes):
                command: Command = refuse_binary()
            else:
                command = decode(frame, max_bytes=max_bytes)
            if self._actor is not None:
                self._actor.post(command, frame_bytes=len(frame))
            else:
                self._take_first(command)
            self._cut_a_flood()

    def _cut_a_flood(self) -> None:
        """End a client that sends on although it is refused, or does not read its refusals."""
        is_unread = self._actor is None and self._outbound.is_over_bound
        if is_unread or (self._actor is not None and self._actor.is_flooded):
            self._close(1013, "input_backpressure")

    def _open_or_wait(self) -> None:
        if self._query.model is not None and self._query.autostarts:
            self._begin(self._host.defaults, OpenRequested())
            return
        limit_s = self._host.world.limits.config_timeout_s
        self._timer = self._clock.call_at(self._clock.now() + limit_s, self._time_out)

    def _take_first(self, command: Command) -> None:
        """Open the session with its first event; what can not begin one leaves the socket open."""
        match command:
            case EventRefused():
                self._say(command.error, command.event_id)
            case ResumeRequested() | EventAcked():
                self._say(no_resume(), command.event_id)
            case CloseRequested():
                self._close(1000, command.reason)
            case SessionConfigured():
                self._configure(command.patch, command.event_id)
            case _:
                self._begin(self._host.defaults, OpenRequested()).post(command)

    def _configure(self, patch: ConfigPatch, event_id: str | None) -> None:
        # Which model runs is the deployment's business; the session says the truth about it.
        model = self._host.defaults.model
        config = replace(patch.apply_to(self._host.defaults), model=model)
        if config.conflict:
            self._say(UnsupportedOption(config.conflict, param="session.overlap_policy"), event_id)
            return
        if config.tools_problem and self._host.world.directory.descriptor.profile.tools:
            self._say(MalformedEvent(config.tools_problem, param="session.tools"), event_id)
            return
        self._begin(config, OpenRequested(event_id))

    def _begin(self, config: SessionConfig, opening: OpenRequested) -> SessionActor:
        self._stop_timer()
        self._actor = actor = self._host.begin(config, self._outbound, self._expect_the_end)
        actor.post(opening)
        return actor

    def _time_out(self) -> None:
        limit_s = self._host.world.limits.config_timeout_s
        self._say(
            MalformedEvent(f"no session.update came within {limit_s:g} s", code="config_timeout"),
            None,
        )
        self._close(1000, "config_timeout")

    # --- out ----------------------------------------------------------------------------------

    async def _run_writer(self) -> None:
        try:
            while True:
                outgoing = await self._outbound.take()
                if isinstance(outgoing.content, CloseSocket):
                    await self._socket.close(outgoing.content.code, _reason(outgoing.content))
                    return
                await self._write(outgoing.content)
                self._note_sent(outgoing)
        except SocketGone:
            return

    async def _write(self, event: Event) -> None:
        if self._is_stale(event):
            return
        self._encoder.attend(event)
        for text in self._projector.project(event):
            await self._socket.send(text)

    def _is_stale(self, event: Event) -> bool:
        """Whether `event` is output of an epoch that was over before it could be sent."""
        fence = output_fence(event)
        if fence is None or self._actor is None:
            return False
        return self._actor.fence.judge(fence) is FenceVerdict.STALE

    def _note_sent(self, outgoing: Outgoing) -> None:
        self._outbound.sent(outgoing)
        if isinstance(outgoing.content, SpeechDelta):
            self._host.world.timings.chunk_to_frame.add(self._clock.now() - outgoing.at_s)

    # --- the end ------------------------------------------------------------------------------

    def _say(self, error: DuplexError, event_id: str | None) -> None:
        self._outbound.put(ErrorRaised(error, event_id), at_s=self._clock.now())

    def _close(self, code: int, reason: str) -> None:
        self._outbound.put(CloseSocket(code, reason), at_s=self._clock.now())
        self._expect_the_end()

    def _expect_the_end(self) -> None:
        """It is over: the socket follows as soon as the last events are read."""
        if not self._is_closing:
            self._is_closing = True
            self._stop_timer()
            self._timer = self._clock.call_at(self._clock.now() + STUCK_AFTER_S, self._stuck.set)

    async def _give_up_when_stuck(self) -> None:
        await self._stuck.wait()

    def _hang_up(self) -> None:
        self._is_closing = True
        self._stop_timer()
        self._outbound.abandon()
        if self._actor is not None:
            self._actor.post(SocketLost())

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _reason(close: CloseSocket) -> str:
    return close.reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore")


_ON: Final = frozenset({"1", "true", "yes", "on"})
_OFF: Final = frozenset({"0", "false", "no", "off"})
