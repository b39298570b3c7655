"""One socket: a reader that is always listening, a writer that only writes, and its session.

Rule 1: the reader turns one frame into one command and posts it; it never waits for anything else.
Rule 2: only the writer sends. It drops streaming output whose fence is stale by now, projects the
        rest and sends it, and nothing more.
Rule 3: however a socket ends, the session hears of it at once.
"""

import asyncio
from dataclasses import replace
from typing import Final, Protocol

from serve_app.clock import sleep_until
from serve_app.gateway.lobby import Lobby
from serve_app.gateway.refusals import Refusals
from serve_app.gateway.socket_query import Query
from serve_app.metrics.definitions import FLOODS, RESUMES
from serve_app.sessions.outbound import Outbound
from serve_app.sessions.session_actor import SessionActor
from serve_app.sessions.session_host import SessionHost
from session.config import SessionConfig
from session.effects import CloseSocket
from session.endings import SERVICE_RESTART
from session.errors import ClientError, IllegalNow, ResumeRefused
from session.leaving import AT_QUIET
from session.on_attachment import REFUSED_TEXT
from session.outbox import Frame
from session.realtime.commands import Command, SessionResumeAsked
from session.realtime.decode import refuse_binary
from session.realtime.opening import Reader
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


class Connection:
    """Runs one accepted socket until either side ends it."""

    def __init__(self, socket: Socket, query: Query, host: SessionHost) -> None:
        self._socket = socket
        self._query = query
        self._host = host
        self._clock = host.world.clock
        self._meter = host.world.meter
        self._attachment = host.new_attachment()
        self._opening = host.new_opening()
        self._reader = self._new_reader()
        self._lobby = Lobby(host, self._attachment, self._opening)
        self._outbound = self._lobby.outbound
        self._actor: SessionActor | None = None
        self._asked: SessionActor | None = None
        """The session that this socket asks for and may not get: it must not be told what to do."""
        self._refusals = Refusals()
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
        is_unread = self._actor is None and self._lobby.outbound.outbox.is_over_bound
        if is_unread or (self._actor is not None and self._actor.is_flooded):
            self._meter.count(FLOODS)
            self._close(1013, "input_backpressure")

    def _open_or_wait(self) -> None:
        kit = self._host.kit
        if kit.greets:
            self._lobby.greet()
        elif self._query.model is not None and self._query.autostarts and kit.autostarts:
            self._begin(self._host.defaults)
            return
        self._lobby.wait(self._time_out)

    async def _take_first(self, command: Command) -> None:
        """Open the session with its first event; what can not begin one leaves the socket open."""
        match command:
            case EventRefused():
                self._lobby.say(command.error, command.event_id)
            case SessionResumeAsked():
                await self._resume(command)
            case EventAcked():
                self._lobby.say(IllegalNow("this socket has no session yet"), command.event_id)
            case CloseRequested():
                self._close(1000, command.reason)
            case SessionConfigured():
                self._configure(command)
            case _:
                self._begin(self._host.defaults)
                if self._actor is not None:
                    self._actor.post(command, attachment=self._attachment)

    def _configure(self, configured: SessionConfigured) -> None:
        config = self._lobby.fit(configured)
        if isinstance(config, ClientError):
            self._lobby.say(config, configured.event_id)
            self._reader = self._new_reader()  # nothing has begun
            return
        self._opening = replace(self._opening, is_configured=True)
        self._begin(config, configured.event_id)

    def _begin(self, config: SessionConfig, event_id: str | None = None) -> None:
        if self._host.sessions.is_draining:
            self._leave_for_drain(event_id)
            return
        is_resumable = self._host.is_resumable
        asked = OpenRequested(event_id, self._attachment, is_resumable=is_resumable)
        actor = self._host.begin(config, asked, self._opening)
        self._enter(actor)
        actor.post(asked)

    async def _resume(self, asked: SessionResumeAsked) -> None:
        """Go on with a session that another socket began, if it may be had."""
        actor = self._host.find(asked.session_id)
        if actor is None:
            self._meter.count(RESUMES, "refused")
            self._lobby.say(ResumeRefused(REFUSED_TEXT), asked.event_id)
            return
        # The client has said what it wants; the answer may take its time.
        self._lobby.stop_waiting()
        self._asked = actor  # should this be cancelled, the session must hear of it
        refusal = await actor.attach(self._attachment, asked)
        self._asked = None
        if refusal is None:
            self._enter(actor)
        else:
            self._lobby.put(refusal)
            self._lobby.wait(self._time_out)

    def _enter(self, actor: SessionActor) -> None:
        """The socket has a session: what is sent comes from there, after what was said before."""
        self._lobby.stop_waiting()
        self._actor = actor
        self._outbound = actor.outbound
        self._lobby.outbound.finish()

    def _time_out(self) -> None:
        if self._host.sessions.is_draining:
            self._leave_for_drain(None)
            return
        if self._host.kit.greets:
            self._begin(self._host.defaults)
            return
        self._lobby.say_time_is_up()
        self._close(1000, "config_timeout")

    def _leave_for_drain(self, event_id: str | None) -> None:
        self._lobby.say_draining(event_id)
        self._close(SERVICE_RESTART, AT_QUIET)

    def _new_reader(self) -> Reader:
        return self._host.kit.new_reader(self._opening.habits)

    # --- out ----------------------------------------------------------------------------------

    async def _run_writer(self) -> None:
        outbound = self._lobby.outbound
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
        if sent.is_refusal:
            self._refusals.note(now=self._clock.now())
            if self._refusals.are_many and not self._is_closing:
                self._meter.count(FLOODS)
                self._close(1008, "too_many_refusals")
        if sent.speech is not None:
            self._host.world.timings.send(self._clock.now() - sent.at_s)
            self._outbound.sent(sent.speech)

    # --- the end ------------------------------------------------------------------------------

    def _close(self, code: int, reason: str) -> None:
        """End a socket that has no session, or whose session ends with it."""
        self._is_closing = True
        self._lobby.stop_waiting()
        if self._actor is not None:
            self._actor.post(CloseRequested(reason))
        self._outbound.perform(CloseSocket(code, reason), at_s=self._clock.now())
        self._lobby.outbound.finish()

    async def _give_up_when_stuck(self) -> None:
        """Return when the client has not read the last of what it is sent within a time."""
        outbound: Outbound | None = None
        while outbound is not self._outbound:
            outbound = self._outbound
            await outbound.done(self._attachment)
        self._is_closing = True
        await sleep_until(self._clock, self._clock.now() + STUCK_AFTER_S)

    def _hang_up(self) -> None:
        self._lobby.stop_waiting()
        self._outbound.leave(self._attachment)
        actor = self._actor or self._asked
        if actor is not None:
            actor.post(SocketLost(self._attachment))


def _reason(close: CloseSocket) -> str:
    return close.reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore")
