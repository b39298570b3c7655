"""`DuplexClient`: one session over one WebSocket.

Rule 1: one reader task takes every frame; it gives each event to the observers, to whoever
        expects it, to its response's handle and to the client's event stream, in that order.
Rule 2: when the reader ends, for whatever reason, everybody who waits gets that reason.
Rule 3: audio is sent in the format that the session's settings declare; the client converts
        nothing.
Rule 4: a lost connection is not the end of the session, where the server can resume it: the link
        makes it again, and the caller learns so by `ConnectionLost` and `Resumed`.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import TypeVar, cast

from clients import commands
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
    SessionReplaced,
)
from clients.expectations import Expectations
from clients.link import Address, Link
from clients.responses import ResponseHandle, ResponseTable
from clients.resuming import Continuity, ResumePolicy
from clients.session_config import input_bytes_per_s

EventT = TypeVar("EventT", bound=ServerEvent)
Observer = Callable[[ServerEvent], object]
Terminal = SessionClosed | SessionExpired | SessionReplaced

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
    resume: ResumePolicy | None = field(default_factory=ResumePolicy)
    """How a lost connection is made again; None: the first loss is the last."""


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
        self._settings = dict(session or {})
        self._input_bytes_per_s = input_bytes_per_s(self._settings)
        self._observers = tuple(observers)
        self._limits = limits if limits is not None else ClientLimits()
        self._clock = clock
        self._event_numbers = itertools.count(1)
        address = Address(url, api_key, close_timeout_s=self._limits.answer_timeout_s)
        self._link = Link(address, self._limits.resume, clock)
        self._reader: asyncio.Task[None] | None = None
        self._created: SessionCreated | None = None
        self._terminal: Terminal | None = None
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

    async def close(self, reason: str = "client_close") -> Terminal | None:
        """Close the session, wait for its terminal event and return that; None if never open.

        While the connection is lost this gives up coming back and raises the loss; the server
        lets the session go when its grace is over.
        """
        if self._reader is None:
            return None
        self._link.leave()
        try:
            if self._terminal is None and self._created is not None:
                if self._link.loss is not None and self._failure is None:
                    raise self._link.loss
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

    @property
    def continuity(self) -> Continuity:
        """How often the connection was made again, and how much audio waits or was dropped."""
        return self._link.continuity

    # --- towards the server -----------------------------------------------------------------

    async def send(self, command: commands.Command) -> str:
        """Send one client event and return its `event_id`; raises the reason when it is too late.

        For events without a method of their own see `clients.commands`.
        """
        event_id = f"c-{next(self._event_numbers)}"
        await self._send(command, event_id)
        return event_id

    async def append_audio(self, audio: bytes, hints: Mapping[str, object] | None = None) -> str:
        """Send audio in the declared input format; waits when the server does not keep up.

        While the connection is lost, the newest audio is kept and sent after the resume.
        """
        event_id = f"c-{next(self._event_numbers)}"
        command = commands.append_audio(audio, hints or {})
        audio_ms = len(audio) * 1000 / self._input_bytes_per_s
        await self._send(command, event_id, audio_ms=audio_ms)
        return event_id

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
        await self._link.open()
        # Not in a TaskGroup: a failure of the reader goes to those who wait, it must not cancel
        # whoever opened the client. `_disconnect` ends the task.
        self._reader = asyncio.create_task(self._run_reader())  # noqa: TID251
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

    async def _send(
        self, command: commands.Command, event_id: str, *, audio_ms: float = 0.0
    ) -> None:
        if self._reader is None:
            raise RuntimeError("the session is not open; use `async with` or await open()")
        if self._failure is not None:
            raise self._failure
        try:
            await self._link.send(
                commands.as_text({**command, "event_id": event_id}), audio_ms=audio_ms
            )
        except DuplexDisconnected as loss:
            raise self._why(loss) from loss

    def _why(self, loss: DuplexDisconnected) -> Exception:
        """Return why nothing can be sent; the reader may know it better than the socket."""
        return self._failure if self._failure is not None else loss

    async def _run_reader(self) -> None:
        async with aclosing(self._link.events()) as events:
            async for event in events:
                if isinstance(event, Terminal):
                    self._terminal = event
                for observer in self._observers:
                    observer(event)
                self._expectations.offer(event)
                self._responses.deliver(event)
                await self._stream.put(event)

    def _reader_ended(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._failure = error
        elif self._terminal is not None:
            self._failure = SessionOver(_reason(self._terminal))
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
        reader, self._reader = self._reader, None
        await self._link.close()
        if reader is not None:
            reader.cancel()
            await asyncio.wait({reader})


def _is_terminal(event: ServerEvent) -> bool:
    return isinstance(event, Terminal)


def _reason(terminal: Terminal) -> str:
    if isinstance(terminal, SessionReplaced):
        return "another connection has taken it over"
    return terminal.reason
