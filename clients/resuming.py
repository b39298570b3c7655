"""What a client needs to come back to its session: values and small ledgers, without a socket.

Rule 1: an event is taken once. A number that was taken before is a repetition; one that leaves a
        gap is a fault of the server, since what is missing will not come any more.
Rule 2: what is sent during a gap is kept in order. Of the audio only the newest `kept_audio_s`
        stay, and what is dropped is counted; no other command is ever dropped.
Rule 3: a refusal that another attempt can not change ends the attempts.
Rule 4: an answer is given from its beginning without a hole, or ends as lost.
"""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from clients import events as ev
from clients.errors import BadServerEvent

FATAL_CODES: Final = frozenset(
    {
        "invalid_session_resume",
        "session_resume_expired",
        "unsupported_session_resume",
        "invalid_resume_token",
        "session_resume_conflict",
    }
)

REFUSED_CLOSE_CODE: Final = 1008
"""The server closed because this client may not be here; it would not let it in again."""


@dataclass(frozen=True, slots=True)
class ResumePolicy:
    """How a lost connection is made again. Delays are in seconds, `draw` returns 0 to 1."""

    attempts: int = 5
    """In a row: an event that comes after a resume makes it a success."""
    first_delay_s: float = 0.25
    max_delay_s: float = 4.0
    attempt_timeout_s: float = 5.0
    kept_audio_s: float = 10.0
    """Audio appended during a gap that is kept to be sent later."""
    kept_commands: int = 256
    """Other commands that are kept; one more is refused with the reason of the loss."""
    draw: Callable[[], float] = random.random
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def delay_s(self, attempt: int) -> float:
        """Return how long to wait before an attempt, counted from 0: jittered, doubling."""
        ceiling_s = min(self.max_delay_s, self.first_delay_s * 2.0 ** (attempt + 1))
        return self.first_delay_s + (ceiling_s - self.first_delay_s) * self.draw()


@dataclass(frozen=True, slots=True)
class Credentials:
    """What lets a new socket take the session up; each resume brings a new token."""

    session_id: str
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Continuity:
    """How often the session was taken up again, and what audio the gaps have cost."""

    resumes: int = 0
    kept_audio_ms: float = 0.0
    """Audio that waits for the connection now."""
    dropped_audio_ms: float = 0.0
    """Audio of all gaps that was too old to be kept."""
    lost_events: int = 0
    """Events of all gaps that the server had not kept."""


class EventPosition:
    """The number of the last event that was taken."""

    def __init__(self) -> None:
        self.last = 0

    def take(self, seq: int | None) -> bool:
        """Whether an event is new. Raises BadServerEvent when events before it are missing."""
        if seq is None:
            return True
        if seq <= self.last:
            return False
        if seq != self.last + 1:
            raise BadServerEvent(f"event {seq} came after event {self.last}")
        self.last = seq
        return True

    def skip_to(self, seq: int) -> int:
        """Give up the events up to `seq`; return how many of them were not taken."""
        missed = seq - self.last
        self.last = seq
        return missed


class WholeAnswers:
    """Tells an answer that has come without a hole from one that has lost a part."""

    def __init__(self) -> None:
        self._begun: dict[str, None] = {}
        self._has_lost = False

    def take(self, event: ev.ServerEvent) -> bool:
        """Whether an event is to be given: False when a part of its answer is missing."""
        match event:
            case ev.ResponseCreated(response_id=begun):
                self._begun[begun] = None
                return True
            case ev.ResponseListen() | ev.OutputAudioCleared():
                return True  # they may speak of an answer that is over, or of none
            case ev.ResponseEvent(response_id=named):
                is_given = named in self._begun or not self._has_lost
                if isinstance(event, ev.ResponseDone):
                    self._begun.pop(named, None)
                return is_given
            case _:
                return True

    def lose(self, first_seq: int, last_seq: int, now: float) -> list[ev.ServerEvent]:
        """Say that these events are lost, and with them the rest of each answer under way."""
        lost, self._begun = self._begun, {}
        self._has_lost = True
        return [
            ev.EventsLost(
                type="events.lost", first_seq=first_seq, last_seq=last_seq, received_s=now
            ),
            *(_lost(response_id, now) for response_id in lost),
        ]


def _lost(response_id: str, now: float) -> ev.ResponseDone:
    return ev.ResponseDone(
        type="response.lost",
        response_id=response_id,
        status=ev.LOST,
        reason="events_lost",
        received_s=now,
    )


@dataclass(frozen=True, slots=True)
class Kept:
    """One command that waits; `audio_ms` is 0 unless it is an append."""

    text: str
    audio_ms: float = 0.0


class Outbox:
    """Commands that wait for a connection, in the order in which they were given."""

    def __init__(self, policy: ResumePolicy) -> None:
        self._bound_ms = policy.kept_audio_s * 1000
        self._bound_commands = policy.kept_commands
        self._kept: deque[Kept] = deque()
        self._commands = 0
        self.audio_ms = 0.0
        self.dropped_ms = 0.0

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, command: Kept) -> bool:
        """Add a command at the end. False: there is no room for it."""
        if not command.audio_ms and self._commands >= self._bound_commands:
            return False
        self._kept.append(command)
        self._count(command, 1)
        while self.audio_ms > self._bound_ms:
            self._drop_oldest_audio()
        return True

    def take(self) -> Kept:
        """Remove and return the oldest command."""
        command = self._kept.popleft()
        self._count(command, -1)
        return command

    def put_back(self, command: Kept) -> None:
        """Make a command that was taken the oldest again: it could not be sent."""
        self._kept.appendleft(command)
        self._count(command, 1)

    def _drop_oldest_audio(self) -> None:
        oldest = next(command for command in self._kept if command.audio_ms)
        self._kept.remove(oldest)
        self._count(oldest, -1)
        self.dropped_ms += oldest.audio_ms

    def _count(self, command: Kept, sign: int) -> None:
        self.audio_ms += sign * command.audio_ms
        self._commands += 0 if command.audio_ms else sign


def resume_url(url: str) -> str:
    """Return the address at which a socket waits for `session.resume`."""
    parts = urlsplit(url)
    query = f"{parts.query}&resume=1" if parts.query else "resume=1"
    return urlunsplit(parts._replace(query=query))
