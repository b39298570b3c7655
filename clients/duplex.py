"""`DuplexClient`: one session over one WebSocket.

Rule 1: one reader task takes every frame; it gives each event to the observers, to whoever
        expects it, to its response's handle and to the client's event stream, in that order.
Rule 2: when the reader ends, for whatever reason, everybody who waits gets that reason.
Rule 3: audio is sent in the format that the session's settings declare; the client converts
        nothing.
"""

import asyncio
import itertools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar, cast

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from clients import commands
from clients.connecting import connect
from clients.errors import (
    AnswerTimedOut,
    DuplexClientError,
    DuplexDisconnected,
    DuplexRefused,
    SessionOver,
)
from clients.event_stream import EventStream
from clients.events import (
    ErrorEvent,
    HeartbeatAck,
    ServerEvent,
    SessionClosed,
    SessionCreated,
    SessionExpired,
)
from clients.expectations import Expectations
from clients.parse import parse_event
from clients.responses import ResponseHandle, ResponseTable

EventT = TypeVar("EventT", bound=ServerEvent)
Observer = Callable[[ServerEvent], object]

_TRY_AGAIN_CLOSE_CODES = frozenset({1012, 1013})


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Bounds of one client."""

    open_timeout_s: float = 60.0
    answer_timeout_s: float = 10.0
    """For the answers to heartbeat and close."""
    event_backlog: int = 1024
    stall_s: float = 30.0
    kept_responses: int = 32


class DuplexClient:
    """A client of `/v1/realtime?duplex=1`.

    `async with DuplexClient(url, config) as client` opens the session and closes it at the end;
    `async for event in client` yields every event after the open. Observers are called with each
    event as it is received, before anybody else; they must be quick.
    """

    def __init__(
        self,
        url: str,
        session: Mapping[str, object] | None = None,
        *,
        api_key: str | None = None,
        observers: Sequence[Observer] = (),
        limits: ClientLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = url
        self._settings = dict(session or {})
        self._api_key = api_key
        self._observers = tuple(observers)
        self._limits = limits if limits is not None else ClientLimits()
        self._clock = clock
        self._event_numbers = itertools.count(1)
        self._socket: ClientConnection | None = None
        self._reader: asyncio.Task[None] | None = None
        self._created: SessionCreated | None = None
        self._terminal: SessionClosed | SessionExpired | None = None
        self._failure: Exception | None = None
        self._expectations = Expectations()
        self._responses = ResponseTable(bound=self._limits.kept_responses)
        self._stream = EventStream(bound=self._limits.event_backlog, stall_s=self._limits.stall_s)

    # --- life -------------------------------------------------------------------------------

    async def open(self) -> SessionCreated:
        """Connect, send the settings and wait for `session.created`; once open, return it again.

        Raises DuplexUnreachable when there is no connection and DuplexRefused when there is one
        but no session.
        """
        if self._created is not None:
            return self._created
        try:
            async with asyncio.timeout(self._limits.open_timeout_s):
                self._created = await self._open()
        except TimeoutError:
            raise AnswerTimedOut(
                f"no session.created within {self._limits.open_timeout_s:g} s"
            ) from None
        finally:
            if self._created is None:
                await self._disconnect()
        return self._created

    async def close(self, reason: str = "client_close") -> SessionClosed | SessionExpired | None:
        """Close the session, wait for its terminal event and return that; None if never open."""
        if self._socket is None:
            return None
        try:
            if self._terminal is None and self._created is not None:
                over = self._expectations.expect(_is_terminal)
                await self.send(commands.close_session(reason))
                await self._answer(over, "session.close")
        finally:
            await self._disconnect()
        return self._terminal

    async def __aenter__(self) -> "DuplexClient":
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            await self.close()
            return
        with suppress(DuplexClientError):  # the body's own error is the one to see
            await self.close()

    @property
    def session(self) -> SessionCreated:
        """The open session. Raises RuntimeError before the open."""
        if self._created is None:
            raise RuntimeError("the session is not open; use `async with` or await open()")
        return self._created

    # --- towards the server -----------------------------------------------------------------

    async def send(self, command: commands.Command) -> str:
        """Send one client event and return its `event_id`; raises the reason when it is too late.

        For events without a method of their own see `clients.commands`.
        """
        event_id = f"c-{next(self._event_numbers)}"
        await self._send(command, event_id)
        return event_id

    async def append_audio(self, audio: bytes, hints: Mapping[str, object] | None = None) -> str:
        """Send audio in the declared input format; waits when the server does not keep up."""
        return await self.send(commands.append_audio(audio, hints or {}))

    async def commit(
        self, *, create_response: bool | None = None, is_speech: bool | None = None
    ) -> str:
        """Make the audio sent so far a user item."""
        return await self.send(
            commands.commit(create_response=create_response, is_speech=is_speech)
        )

    async def clear(self) -> str:
        """Drop the audio sent since the last commit."""
        return await self.send(commands.clear())

    async def create_response(self, options: Mapping[str, object] | None = None) -> ResponseHandle:
        """Ask for an answer and wait until it has begun. Raises RequestRefused."""
        event_id = f"c-{next(self._event_numbers)}"
        begun = self._responses.ask(event_id)
        await self._send(commands.create_response(options or {}, event_id), event_id)
        return await begun

    async def cancel_response(self, response_id: str | None = None) -> str:
        """Stop a response; without an id, the active one."""
        return await self.send(commands.cancel_response(response_id))

    async def ack_playback(self, response_id: str, played_ms: int) -> str:
        """Tell the server how much of a response the user has heard."""
        return await self.send(commands.ack_playback(response_id, played_ms))

    async def truncate(self, item_id: str, audio_end_ms: int) -> str:
        """Tell the server that nothing of an item after `audio_end_ms` was heard."""
        return await self.send(commands.truncate(item_id, audio_end_ms))

    async def barge_in(self) -> str:
        """Interrupt the assistant."""
        return await self.send(commands.barge_in())

    async def heartbeat(self) -> float:
        """Ask whether the session lives and return the round trip in seconds."""
        answer = self.expect(HeartbeatAck)
        sent_s = self._clock()
        await self.send(commands.heartbeat())
        return (await self._answer(answer, "session.heartbeat")).received_s - sent_s

    # --- from the server --------------------------------------------------------------------

    def __aiter__(self) -> EventStream:
        return aiter(self._stream)

    def expect(
        self, kind: type[EventT], where: Callable[[EventT], bool] | None = None
    ) -> "asyncio.Future[EventT]":
        """Return a future of the next event of a kind. Make it before you send the cause."""

        def matches(event: ServerEvent) -> bool:
            return isinstance(event, kind) and (where is None or where(event))

        return cast("asyncio.Future[EventT]", self._expectations.expect(matches))

    async def next_response(self) -> ResponseHandle:
        """Wait for the next response that was not asked for with `create_response`."""
        return await self._responses.next()

    # --- inside -----------------------------------------------------------------------------

    async def _open(self) -> SessionCreated:
        self._socket = await connect(
            self._url, api_key=self._api_key, close_timeout_s=self._limits.answer_timeout_s
        )
        # Not in a TaskGroup: a failure of the reader goes to those who wait, it must not cancel
        # whoever opened the client. `_disconnect` ends the task.
        self._reader = asyncio.create_task(self._run_reader(self._socket))  # noqa: TID251
        self._reader.add_done_callback(self._reader_ended)
        answer = self._expectations.expect(
            lambda event: isinstance(event, SessionCreated | ErrorEvent)
        )
        try:
            # A server that refuses at once may have closed already; its error is in `answer`.
            with suppress(DuplexDisconnected):
                await self.send(commands.update_session(self._settings))
            event = await answer
        except SessionOver as error:
            raise DuplexRefused("session_over", error.reason, retryable=True) from error
        except DuplexDisconnected as error:
            raise DuplexRefused(
                f"closed_{error.close_code}",
                error.reason or "the server closed the connection without saying why",
                retryable=error.close_code in _TRY_AGAIN_CLOSE_CODES,
            ) from error
        if isinstance(event, SessionCreated):
            return event
        assert isinstance(event, ErrorEvent)
        raise DuplexRefused(event.code, event.message, retryable=event.retryable)

    async def _send(self, command: commands.Command, event_id: str) -> None:
        if self._socket is None:
            raise RuntimeError("the session is not open; use `async with` or await open()")
        if self._failure is not None:
            raise self._failure
        text = json.dumps({**command, "event_id": event_id}, separators=(",", ":"))
        try:
            await self._socket.send(text)
        except ConnectionClosed as closed:
            raise self._reason(closed) from closed

    def _reason(self, closed: ConnectionClosed) -> Exception:
        """Return why nothing can be sent; the reader may know it better than the socket."""
        return self._failure if self._failure is not None else _disconnected(closed)

    async def _run_reader(self, socket: ClientConnection) -> None:
        try:
            async for frame in socket:
                event = parse_event(frame, received_s=self._clock())
                if isinstance(event, SessionClosed | SessionExpired):
                    self._terminal = event
                for observer in self._observers:
                    observer(event)
                self._expectations.offer(event)
                self._responses.deliver(event)
                await self._stream.put(event)
        except ConnectionClosed as closed:
            if self._terminal is None:
                raise _disconnected(closed) from closed
        if self._terminal is None:
            raise DuplexDisconnected(socket.close_code or 1006, socket.close_reason or "")

    def _reader_ended(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._failure = error
        elif self._terminal is not None:
            self._failure = SessionOver(self._terminal.reason)
        else:
            self._failure = SessionOver("this client has disconnected")
        self._expectations.fail(self._failure)
        self._responses.fail(self._failure)
        self._stream.finish(error if isinstance(error, Exception) else None)

    async def _answer(self, answer: "asyncio.Future[EventT]", to: str) -> EventT:
        try:
            async with asyncio.timeout(self._limits.answer_timeout_s):
                return await answer
        except TimeoutError:
            raise AnswerTimedOut(
                f"no answer to {to} within {self._limits.answer_timeout_s:g} s"
            ) from None

    async def _disconnect(self) -> None:
        socket, reader, self._socket = self._socket, self._reader, None
        if socket is not None:
            await socket.close()
        if reader is not None:
            reader.cancel()
            await asyncio.wait({reader})


def _is_terminal(event: ServerEvent) -> bool:
    return isinstance(event, SessionClosed | SessionExpired)


def _disconnected(closed: ConnectionClosed) -> DuplexDisconnected:
    close = closed.rcvd
    return DuplexDisconnected(close.code, close.reason) if close else DuplexDisconnected(1006, "")
