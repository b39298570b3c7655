"""One session's connection: a socket, and after a loss the next one, as if nothing had happened.

Rule 1: whoever reads gets each event once and in order. A loss is an event, `ConnectionLost`, and
        so is the return, `Resumed`; the events of the gap follow it. What the server has not kept
        of them is an event as well, `EventsLost`, and each answer with a hole ends there.
Rule 2: whoever sends does not wait for a lost connection. What is sent meanwhile is kept and goes
        out first, in order, before anything newer.
Rule 3: every numbered event is acknowledged; one acknowledgement may cover a burst.
Rule 4: a session that is over, is being closed, or can not be resumed is never taken up again.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from clients import commands
from clients import events as ev
from clients.connecting import connect
from clients.errors import (
    AnswerTimedOut,
    BadServerEvent,
    DuplexDisconnected,
    DuplexRefused,
    DuplexUnreachable,
    ResumeRefused,
    SessionOver,
)
from clients.parse import parse_event
from clients.resuming import (
    FATAL_CODES,
    REFUSED_CLOSE_CODE,
    Continuity,
    Credentials,
    EventPosition,
    Kept,
    Outbox,
    ResumePolicy,
    WholeAnswers,
    resume_url,
)


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server is, and how to get in. Times are in seconds."""

    url: str
    api_key: str | None
    close_timeout_s: float


class Link:
    """Sends and reads over one socket after the other. `policy` None: over one only."""

    def __init__(
        self, address: Address, policy: ResumePolicy | None, clock: Callable[[], float]
    ) -> None:
        self._address = address
        self._policy = policy
        self._clock = clock
        self._socket: ClientConnection | None = None
        self._credentials: Credentials | None = None
        self._position = EventPosition()
        self._answers = WholeAnswers()
        self._outbox = Outbox(policy if policy is not None else ResumePolicy())
        self._is_whole = False
        """Whether there is a socket and nothing kept: what is sent can go out at once."""
        self._is_over = False
        """Whether no other socket shall follow this one."""
        self._has_ended = False
        self._loss: DuplexDisconnected | None = None
        self._attempts = 0
        self._resume_count = 0
        self._lost_count = 0
        self._writer: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    @property
    def loss(self) -> DuplexDisconnected | None:
        """What broke the connection, while it is broken."""
        return self._loss

    @property
    def continuity(self) -> Continuity:
        """What the gaps have cost so far."""
        return Continuity(
            self._resume_count, self._outbox.audio_ms, self._outbox.dropped_ms, self._lost_count
        )

    async def open(self) -> None:
        """Connect for the first time. Raises DuplexUnreachable or DuplexRefused."""
        await self._attach(await self._connect(self._address.url))

    def leave(self) -> None:
        """The session is being closed: a loss is final from now on."""
        self._is_over = True

    async def send(self, text: str, *, audio_ms: float = 0.0) -> None:
        """Send one frame, or keep it for the next socket. Raises DuplexDisconnected."""
        while self._is_whole and self._socket is not None:
            socket = self._socket
            try:
                await socket.send(text)
            except ConnectionClosed as closed:
                loss = _disconnected(closed)
                if not self._may_resume(loss):
                    raise loss from closed
                if socket is self._socket:
                    self._is_whole = False
            else:
                return
        if not self._outbox.keep(Kept(text, audio_ms)):
            raise self._loss or DuplexDisconnected(1006, "too much waits for the connection")

    async def events(self) -> AsyncGenerator[ev.ServerEvent, None]:
        """Yield events until the session is over. Raises what ended it before that."""
        while self._socket is not None:
            socket = self._socket
            try:
                async for frame in socket:
                    event = parse_event(frame, received_s=self._clock())
                    if self._learn(event):
                        yield event
                loss = DuplexDisconnected(socket.close_code or 1006, socket.close_reason or "")
            except ConnectionClosed as closed:
                loss = _disconnected(closed)
            if self._has_ended:
                return
            if not self._may_resume(loss):
                raise loss
            self._loss, self._is_whole = loss, False
            yield ev.ConnectionLost(
                type="connection.lost",
                close_code=loss.close_code,
                reason=loss.reason,
                received_s=self._clock(),
            )
            for event in await self._come_back(loss):
                yield event

    async def close(self) -> None:
        """Let the socket go; nothing is sent or taken up again."""
        socket, writer = self._socket, self._writer
        self._socket = self._writer = None
        self._is_over = True
        await _end(writer)
        if socket is not None:
            await socket.close()

    # --- inside -----------------------------------------------------------------------------

    def _learn(self, event: ev.ServerEvent) -> bool:
        """Take note of an event; False when it has been there before, or is a fragment."""
        if not self._position.take(event.seq):
            return False
        self._attempts = 0
        if event.seq is not None:
            self._news.set()
        match event:
            case ev.SessionCreated() if event.resume_token:
                self._credentials = Credentials(event.session_id, event.resume_token)
            case ev.ResyncRequired():
                self._credentials = None
            case ev.SessionClosed() | ev.SessionExpired() | ev.SessionReplaced():
                self._has_ended = True
            case _:
                pass
        return self._answers.take(event)

    def _may_resume(self, loss: DuplexDisconnected) -> bool:
        is_ending = self._is_over or self._has_ended or loss.close_code == REFUSED_CLOSE_CODE
        return self._policy is not None and self._credentials is not None and not is_ending

    async def _come_back(self, loss: DuplexDisconnected) -> list[ev.ServerEvent]:
        policy, credentials = self._policy, self._credentials
        assert policy is not None
        assert credentials is not None
        last: Exception = loss
        while self._attempts < policy.attempts:
            await policy.sleep(policy.delay_s(self._attempts))
            self._attempts += 1
            try:
                async with asyncio.timeout(policy.attempt_timeout_s):
                    return await self._resume(credentials)
            except DuplexRefused as refusal:
                if not refusal.retryable:
                    raise ResumeRefused(refusal.code, refusal.message) from refusal
                last = refusal
            except TimeoutError:
                last = AnswerTimedOut(f"no answer within {policy.attempt_timeout_s:g} s")
            except (DuplexUnreachable, DuplexDisconnected) as error:
                last = error
        raise DuplexDisconnected(
            loss.close_code,
            f"{loss.reason or 'no reason given'}; "
            f"{policy.attempts} attempts to come back failed, the last: {last}",
        ) from last

    async def _resume(self, credentials: Credentials) -> list[ev.ServerEvent]:
        """Take the session up over a new socket; return what there is to say of it."""
        socket = await self._connect(resume_url(self._address.url))
        try:
            resumed, after_seq = await self._ask(socket, credentials)
        except ConnectionClosed as closed:
            raise _disconnected(closed) from closed
        except BaseException:
            socket.transport.abort()
            raise
        self._credentials = Credentials(credentials.session_id, resumed.resume_token)
        self._resume_count += 1
        self._loss = None
        lost = self._give_up_to(after_seq, resumed.received_s)
        await self._attach(socket)
        # At once, also when nothing follows: the token that this one came with ends with it.
        self._news.set()
        return [resumed, *lost]

    async def _ask(
        self, socket: ClientConnection, credentials: Credentials
    ) -> tuple[ev.Resumed, int]:
        """Return the server's yes, and the number after which it sends the events again."""
        after_seq = self._position.last
        while True:
            request = commands.resume_session(credentials.session_id, credentials.token, after_seq)
            await socket.send(commands.as_text(request))
            answer = parse_event(await socket.recv(), received_s=self._clock())
            match answer:
                case ev.Resumed():
                    return answer, after_seq
                case ev.ResyncRequired(oldest_seq=int(oldest)) if oldest - 1 > after_seq:
                    after_seq = oldest - 1  # a session with a hole is better than none
                case _:
                    raise _refusal(answer)

    def _give_up_to(self, seq: int, now: float) -> list[ev.ServerEvent]:
        """Say what is lost when the events up to `seq` are."""
        first = self._position.last + 1
        missed = self._position.skip_to(seq)
        self._lost_count += missed
        return self._answers.lose(first, seq, now) if missed else []

    async def _connect(self, url: str) -> ClientConnection:
        return await connect(
            url, api_key=self._address.api_key, close_timeout_s=self._address.close_timeout_s
        )

    async def _attach(self, socket: ClientConnection) -> None:
        await _end(self._writer)
        self._socket = socket
        self._is_whole = not self._outbox
        self._news.clear()
        # Not in a TaskGroup: it lives from this socket to the next, whoever calls. `_end` ends it.
        self._writer = asyncio.create_task(self._write(socket))  # noqa: TID251

    async def _write(self, socket: ClientConnection) -> None:
        """Send what was kept, and from then on acknowledge what comes."""
        with suppress(ConnectionClosed):  # the reader sees it too, and knows what to do
            while self._outbox:
                command = self._outbox.take()
                try:
                    await socket.send(command.text)
                except BaseException:
                    self._outbox.put_back(command)
                    raise
            self._is_whole = True
            while True:
                await self._news.wait()
                self._news.clear()
                await socket.send(commands.as_text(commands.ack_events(self._position.last)))


def _refusal(answer: ev.ServerEvent) -> Exception:
    """Return what an answer to `session.resume` means that is no yes."""
    match answer:
        case ev.ErrorEvent():
            return DuplexRefused(
                answer.code, answer.message, retryable=answer.code not in FATAL_CODES
            )
        case ev.ResyncRequired():
            return DuplexRefused(
                answer.reason, "the server has not kept the events since", retryable=False
            )
        case ev.SessionClosed() | ev.SessionExpired():
            return SessionOver(answer.reason)
        case _:
            return BadServerEvent(f"{answer.type} is no answer to session.resume")


async def _end(task: "asyncio.Task[None] | None") -> None:
    if task is not None:
        task.cancel()
        await asyncio.wait({task})


def _disconnected(closed: ConnectionClosed) -> DuplexDisconnected:
    close = closed.rcvd
    return DuplexDisconnected(close.code, close.reason) if close else DuplexDisconnected(1006, "")
