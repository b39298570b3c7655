"""One socket: a reader that is always listening, a writer that only writes, and the opening.

Rule 1: the reader turns one frame into one command and posts it; it never waits for anything else.
Rule 2: only the writer sends. It drops streaming output whose fence is stale by now, projects the
        rest and sends it, and nothing more.
Rule 3: however a socket ends, the session hears of it at once.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from serve_app.clock import Timer, sleep_until
from serve_app.metrics.definitions import FLOODS
from serve_app.metrics.meter import count_error
from serve_app.outbound import Outbound
from serve_app.session_actor import SessionActor, World
from session.config import SessionConfig
from session.effects import CloseSocket, Emit
from session.errors import (
    ClientError,
    DuplexError,
    IllegalNow,
    MalformedEvent,
    ResumeRefused,
    UnsupportedOption,
)
from session.events import ErrorRaised, Event, SessionCreated
from session.fence import Fence
from session.fitting import fitted
from session.ids import AttachmentId, SessionId
from session.lifecycle import Life, TurnState
from session.on_attachment import REFUSED_TEXT
from session.outbox import Frame
from session.realtime.commands import Command, SessionResumeAsked
from session.realtime.decode import refuse_binary
from session.realtime.opening import ClientHabits, Opening, Reader
from session.snapshot import Playback, SessionSnapshot
from session.socket_stimuli import EventAcked, SocketLost
from session.stimuli import (
    CloseRequested,
    EventRefused,
    OpenRequested,
    SessionConfigured,
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


@dataclass(frozen=True, slots=True)
class Query:
    """What a client asks for in the socket's URL."""

    model: str | None
    autostarts: bool
    """Whether the session may begin with default settings before the client says any."""


class Host(Protocol):
    """What a connection gets from the gateway."""

    @property
    def world(self) -> World:
        """What all sessions share."""
        ...

    @property
    def defaults(self) -> SessionConfig:
        """Settings of a session whose client says nothing."""
        ...

    @property
    def greets(self) -> bool:
        """Whether a client is told of its session before it has said anything."""
        ...

    @property
    def autostarts(self) -> bool:
        """Whether a socket that names a model in its URL needs no first event."""
        ...

    @property
    def first_event(self) -> str:
        """The event that opens a session."""
        ...

    @property
    def is_resumable(self) -> bool:
        """Whether another socket can go on with a session."""
        ...

    def new_attachment(self) -> AttachmentId:
        """Name a socket."""
        ...

    def new_opening(self) -> Opening:
        """Name the session that a socket may begin."""
        ...

    def new_reader(self, habits: ClientHabits) -> Reader:
        """Return what reads a socket's frames."""
        ...

    def lobby(self, attachment: AttachmentId, opening: Opening) -> Outbound:
        """Return the way out to a socket that has no session yet."""
        ...

    def begin(self, config: SessionConfig, asked: OpenRequested, opening: Opening) -> SessionActor:
        """Start a session and return it."""
        ...

    def find(self, session_id: SessionId) -> SessionActor | None:
        """Return a session that is not over."""
        ...


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
        self._meter = host.world.meter
        self._attachment = host.new_attachment()
        self._opening = host.new_opening()
        self._reader = host.new_reader(self._opening.habits)
        self._lobby = self._outbound = host.lobby(self._attachment, self._opening)
        self._actor: SessionActor | None = None
        self._asked: SessionActor | None = None
        """The session that this socket asks for and may not get: it must not be told what to do."""
        self._configured_by_s = self._clock.now() + host.world.limits.config_timeout_s
        self._timer: Timer | None = None
        self._is_closing = False

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
                command = self._reader.decode(frame, max_bytes=max_bytes)
            if self._actor is not None:
                self._actor.post(command, attachment=self._attachment, frame_bytes=len(frame))
            else:
                await self._take_first(command)
            self._cut_a_flood()

    def _cut_a_flood(self) -> None:
        """End a client that sends on although it is refused, or does not read its refusals."""
        is_unread = self._actor is None and self._lobby.outbox.is_over_bound
        if is_unread or (self._actor is not None and self._actor.is_flooded):
            self._meter.count(FLOODS)
            self._close(1013, "input_backpressure")

    def _open_or_wait(self) -> None:
        if self._host.greets:
            self._greet()
        elif self._query.model is not None and self._query.autostarts and self._host.autostarts:
            self._begin(self._host.defaults)
            return
        self._start_timer()

    def _greet(self) -> None:
        """Tell the client of its session. Its first event opens the stages, with its settings."""
        fence = Fence(self._opening.session_id, incarnation=0, epoch=0, turn=0)
        config = self._host.defaults
        opening, idle = Life.OPENING.value, TurnState.IDLE.value
        self._put(SessionCreated(SessionSnapshot(fence, opening, idle, config, Playback())))

    async def _take_first(self, command: Command) -> None:
        """Open the session with its first event; what can not begin one leaves the socket open."""
        match command:
            case EventRefused():
                self._say(command.error, command.event_id)
            case SessionResumeAsked():
                await self._resume(command)
            case EventAcked():
                self._say(IllegalNow("this socket has no session yet"), command.event_id)
            case CloseRequested():
                self._close(1000, command.reason)
            case SessionConfigured():
                self._configure(command)
            case _:
                self._begin(self._host.defaults).post(command, attachment=self._attachment)

    def _configure(self, configured: SessionConfigured) -> None:
        event_id, profile = configured.event_id, self._host.world.directory.descriptor.profile
        # Which model runs is the deployment's business; the session says the truth about it.
        model = self._host.defaults.model
        config = replace(configured.patch.apply_to(self._host.defaults), model=model)
        if configured.is_lenient:
            config = fitted(config, None, profile)
        refusal = self._refusal(config)
        if refusal is not None:
            self._say(refusal, event_id)
            self._reader = self._host.new_reader(self._opening.habits)  # nothing has begun
            return
        self._opening = replace(self._opening, is_configured=True)
        self._begin(config, event_id)

    def _refusal(self, config: SessionConfig) -> ClientError | None:
        """Say why no session can begin with these settings."""
        profile = self._host.world.directory.descriptor.profile
        if config.conflict:
            return UnsupportedOption(config.conflict, param="session.overlap_policy")
        if config.tools_fault is not None and profile.tools:
            return config.tools_fault.error()
        if config.opening_messages and not profile.messages:
            return UnsupportedOption(
                f"{config.model} can not be told what was said before; leave session.input out",
                code="unsupported_session_input",
                param="session.input",
            )
        return None

    def _begin(self, config: SessionConfig, event_id: str | None = None) -> SessionActor:
        is_resumable = self._host.is_resumable
        asked = OpenRequested(event_id, self._attachment, is_resumable=is_resumable)
        actor = self._host.begin(config, asked, self._opening)
        self._enter(actor)
        actor.post(asked)
        return actor

    async def _resume(self, asked: SessionResumeAsked) -> None:
        """Go on with a session that another socket began, if it may be had."""
        actor = self._host.find(asked.session_id)
        if actor is None:
            self._say(ResumeRefused(REFUSED_TEXT), asked.event_id)
            return
        self._stop_timer()  # the client has said what it wants; the answer may take its time
        self._asked = actor  # should this be cancelled, the session must hear of it
        refusal = await actor.attach(self._attachment, asked)
        self._asked = None
        if refusal is None:
            self._enter(actor)
        else:
            self._put(refusal)
            self._start_timer()

    def _enter(self, actor: SessionActor) -> None:
        """The socket has a session: what is sent comes from there, after what was said before."""
        self._stop_timer()
        self._actor = actor
        self._outbound = actor.outbound
        self._lobby.finish()

    def _time_out(self) -> None:
        if self._host.greets:
            self._begin(self._host.defaults)
            return
        limit_s = self._host.world.limits.config_timeout_s
        self._say(
            MalformedEvent(
                f"no {self._host.first_event} came within {limit_s:g} s", code="config_timeout"
            ),
            None,
        )
        self._close(1000, "config_timeout")

    # --- out ----------------------------------------------------------------------------------

    async def _run_writer(self) -> None:
        outbound = self._lobby
        try:
            while True:
                item = await outbound.next(self._attachment)
                match item:
                    case None if outbound is self._outbound:
                        return
                    case None:
                        outbound = self._outbound
                    case CloseSocket():
                        self._is_closing = True
                        await self._socket.close(item.code, _reason(item))
                        return
                    case Frame():
                        await self._socket.send(item.text)
                        self._measure(item)
        except SocketGone:
            return

    def _measure(self, sent: Frame) -> None:
        if sent.is_speech:
            self._host.world.timings.send(self._clock.now() - sent.at_s)

    # --- the end ------------------------------------------------------------------------------

    def _say(self, error: DuplexError, event_id: str | None) -> None:
        """Say what is wrong while there is no session."""
        count_error(self._meter, error)
        self._put(ErrorRaised(error, event_id))

    def _put(self, event: Event) -> None:
        self._lobby.perform(Emit(event), at_s=self._clock.now())

    def _close(self, code: int, reason: str) -> None:
        """End a socket that has no session, or whose session ends with it."""
        self._is_closing = True
        self._stop_timer()
        if self._actor is not None:
            self._actor.post(CloseRequested(reason))
        self._outbound.perform(CloseSocket(code, reason), at_s=self._clock.now())
        self._lobby.finish()

    async def _give_up_when_stuck(self) -> None:
        """Return when the client has not read the last of what it is sent within a time."""
        outbound: Outbound | None = None
        while outbound is not self._outbound:
            outbound = self._outbound
            await outbound.done(self._attachment)
        self._is_closing = True
        await sleep_until(self._clock, self._clock.now() + STUCK_AFTER_S)

    def _hang_up(self) -> None:
        self._stop_timer()
        self._outbound.leave(self._attachment)
        actor = self._actor or self._asked
        if actor is not None:
            actor.post(SocketLost(self._attachment))

    def _start_timer(self) -> None:
        self._timer = self._clock.call_at(self._configured_by_s, self._time_out)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _reason(close: CloseSocket) -> str:
    return close.reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore")


_ON: Final = frozenset({"1", "true", "yes", "on"})
_OFF: Final = frozenset({"0", "false", "no", "off"})
