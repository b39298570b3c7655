"""Conversations with a running MiniCPM-o through its wire, in real time, and what they measured.

Each session sends five pieces of 200 ms each second, as a microphone does. Of six seconds two are
listened to by force and four are free to speak, at which random weights always do; the first of
those is what somebody waits for. The last second of every other turn is cut off when its sound
comes, and the next one is sent at once. What came is acknowledged as it would be played.

A unit of MiniCPM-o is one second, and each is answered once: by `response.listen`, by one chunk of
sound, or, if it ends a turn by listening, by `response.done`. So the answers of a session belong to
its seconds in order. A turn that the model itself ends has more sound in its last answer; random
weights hardly ever do so, and it counts as a failure here.
"""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Final

from clients.duplex import ClientLimits, DuplexClient
from clients.errors import DuplexClientError
from clients.events import (
    AudioDelta,
    ErrorEvent,
    ResponseCreated,
    ResponseDone,
    ResponseListen,
    ServerEvent,
)
from clients.minicpmo_4_5 import create_duplex_session_config
from clients.playback import PlaybackClock
from tests.support.stage0_talk import second

LISTENS: Final = 2
ROUND: Final = 6
PIECES: Final = 5
PIECE_S: Final = 0.2
DEADLINE_S: Final = 1.0
_GOES_ON: Final = 4000
"""Sounds from here on let the toy model speak too, once it has heard seven seconds of them."""
_A_PROCESS: Final = 8
"""So many sessions in one process of clients."""
_ANSWER_WITHIN_S: Final = 30.0
_LIMITS: Final = ClientLimits(event_backlog=1, kept_responses=1, resume=None)


@dataclass(frozen=True, slots=True)
class Talks:
    """A level: so many sessions that talk for so many seconds."""

    url: str
    sessions: int
    seconds: int


@dataclass(slots=True)
class Times:
    """What was measured, in milliseconds on the clients' clock."""

    open_ms: list[float] = field(default_factory=list)
    listen_ms: list[float] = field(default_factory=list)
    """From the last piece of a second that is listened to, to the event that says so."""
    created_ms: list[float] = field(default_factory=list)
    """From the last piece of a turn's first second to `response.created`."""
    first_ms: list[float] = field(default_factory=list)
    """From the same to the first sound."""
    later_ms: list[float] = field(default_factory=list)
    """From the last piece of a turn's later second to its sound."""
    cancelled_ms: list[float] = field(default_factory=list)
    """From `response.cancel` to the `response.done` that says so."""
    again_ms: list[float] = field(default_factory=list)
    """From `response.cancel`, with the next second right behind it, to that one's sound."""
    stall_ms: list[float] = field(default_factory=list)
    """Silences that a listener heard within an answer, because sound came late."""
    sent_late_ms: list[float] = field(default_factory=list)
    units: int = 0
    late_at_s: list[int] = field(default_factory=list)
    """Seconds of the talk whose answers took longer than a second; what never came is a failure."""
    unforeseen: int = 0
    """Units that were free to speak and did not."""
    failures: list[str] = field(default_factory=list)
    cpu_s: float = 0.0

    def add(self, other: "Times") -> None:
        """Take another's figures in."""
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


def run_talks(talks: Talks) -> Times:
    """Hold all conversations and return what they measured together."""
    # Time for all processes to start and to open; each session keeps to its own phase then.
    start_s = time.monotonic() + 10.0 + 0.25 * talks.sessions
    numbers = range(talks.sessions)
    shares = [numbers[first : first + _A_PROCESS] for first in numbers[::_A_PROCESS]]
    times = Times()
    with ProcessPoolExecutor(len(shares), mp_context=get_context("spawn")) as pool:
        for share in [pool.submit(_run_share, talks, share, start_s) for share in shares]:
            times.add(share.result())
    return times


def _run_share(talks: Talks, numbers: Sequence[int], start_s: float) -> Times:
    times = Times()

    async def all_of_them() -> None:
        await asyncio.gather(*(_Caller(talks, at, start_s, times).run() for at in numbers))

    before_s = time.process_time()
    asyncio.run(all_of_them())
    times.cpu_s = time.process_time() - before_s
    return times


@dataclass(slots=True)
class _Sent:
    """A second that was sent."""

    second: int
    at_s: float
    is_free: bool
    is_turn_start: bool


class _Caller:
    """One session."""

    def __init__(self, talks: Talks, number: int, start_s: float, times: Times) -> None:
        self._talks = talks
        self._number = number
        self._start_s = start_s + number / talks.sessions
        self._times = times
        self._speaker = PlaybackClock()
        self._answers: asyncio.Queue[ServerEvent] = asyncio.Queue()
        self._created_s = 0.0
        self._cancelled: asyncio.Future[float] | None = None

    async def run(self) -> None:
        """Converse; what goes wrong is counted, not raised."""
        config = create_duplex_session_config()
        client = DuplexClient(self._talks.url, config, observers=(self._observe,), limits=_LIMITS)
        try:
            began_s = time.monotonic()
            async with client:
                self._times.open_ms.append(_since_ms(began_s))
                await self._converse(client)
        except (DuplexClientError, TimeoutError) as error:
            self._fail(repr(error))
        self._times.stall_ms += self._speaker.stall_ms

    async def _converse(self, client: DuplexClient) -> None:
        hearing: asyncio.Task[bool] | None = None
        is_behind = False
        for number in range(self._talks.seconds):
            # Each session begins at another place of its round.
            turn, place = divmod(number + self._number, ROUND)
            is_free = place >= LISTENS
            due_s = self._start_s + number
            await self._send(client, number, due_s, is_free=is_free, is_behind=is_behind)
            is_behind = False
            sent = _Sent(number, time.monotonic(), is_free, place == LISTENS)
            if hearing is not None:
                await hearing  # a session's seconds are answered one after the other
            hearing = asyncio.create_task(self._hear(sent))  # noqa: TID251 - awaited before the next
            if is_free and place == ROUND - 1 and turn % 2 == 1:
                if await hearing:
                    await self._cut_off(client, number)
                    is_behind = True
                hearing = None
        if hearing is not None:
            await hearing
        if not self._answers.empty():
            self._fail(f"{self._answers.qsize()} answers too many")

    async def _send(
        self, client: DuplexClient, number: int, due_s: float, *, is_free: bool, is_behind: bool
    ) -> None:
        """Send a second in pieces, the last one when it is due; behind a cut, as soon as it can."""
        hints = {} if is_free else {"force_listen": True}
        sound = second(_GOES_ON + number)
        size = len(sound) // PIECES
        for piece in range(PIECES):
            at_s = due_s - (PIECES - 1 - piece) * PIECE_S
            await asyncio.sleep(max(0.0, at_s - time.monotonic()))
            if not is_behind:
                self._times.sent_late_ms.append(_since_ms(at_s))
            await client.append_audio(sound[piece * size : (piece + 1) * size], hints)
            for ack in self._speaker.due_acks(time.monotonic()):
                await client.ack_playback(ack.response_id, ack.played_ms)

    async def _hear(self, sent: _Sent) -> bool:
        """Take the answer to a second; return whether it was sound."""
        self._times.units += 1
        answer = await self._answer()
        if answer is None:
            return False
        took_ms = (answer.received_s - sent.at_s) * 1000
        if took_ms > DEADLINE_S * 1000:
            self._times.late_at_s.append(sent.second)
        if not isinstance(answer, AudioDelta):
            self._times.listen_ms.append(took_ms)
            self._times.unforeseen += sent.is_free
        elif sent.is_turn_start:
            self._times.created_ms.append((self._created_s - sent.at_s) * 1000)
            self._times.first_ms.append(took_ms)
        else:
            self._times.later_ms.append(took_ms)
        return isinstance(answer, AudioDelta)

    async def _cut_off(self, client: DuplexClient, number: int) -> None:
        """Cancel the answer that is being heard, and send the next second at once."""
        self._cancelled = asyncio.get_running_loop().create_future()
        cut_s = time.monotonic()
        await client.cancel_response()
        await client.append_audio(second(_GOES_ON + number))
        async with asyncio.timeout(_ANSWER_WITHIN_S):
            self._times.cancelled_ms.append((await self._cancelled - cut_s) * 1000)
        self._times.units += 1
        answer = await self._answer()
        if answer is None:
            return
        took_ms = (answer.received_s - cut_s) * 1000
        if took_ms > DEADLINE_S * 1000:
            self._times.late_at_s.append(number)
        if isinstance(answer, AudioDelta):
            self._times.again_ms.append(took_ms)
        else:
            self._times.unforeseen += 1

    async def _answer(self) -> ServerEvent | None:
        async with asyncio.timeout(_ANSWER_WITHIN_S):
            answer = await self._answers.get()
        if isinstance(answer, ErrorEvent):
            self._fail(f"{answer.code}: {answer.message}")
            return None
        return answer

    def _observe(self, event: ServerEvent) -> None:
        self._speaker.observe(event)
        match event:
            case ResponseListen() | AudioDelta() | ErrorEvent():
                self._answers.put_nowait(event)
            case ResponseDone() if event.status == "completed":
                self._answers.put_nowait(event)
            case ResponseCreated():
                self._created_s = event.received_s
            case ResponseDone() if event.status == "cancelled":
                if self._cancelled is not None and not self._cancelled.done():
                    self._cancelled.set_result(event.received_s)
            case _:
                pass

    def _fail(self, why: str) -> None:
        self._times.failures.append(f"session {self._number}: {why}")


def _since_ms(then_s: float) -> float:
    return max(0.0, (time.monotonic() - then_s) * 1000)
