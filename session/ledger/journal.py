"""The replay journal: what a client was sent and has not said that it read.

Rule 1: numbers start at 1 and have no gaps; a text keeps its number for ever.
Rule 2: texts are forgotten once acknowledged, when they are too old, and all at once when they
        are too many: then nobody can come back, and nothing gets a number any more.
"""

import enum
from collections import deque
from dataclasses import dataclass, field
from typing import Final


class Replay(enum.Enum):
    """Whether a client that has read so far can be sent the rest."""

    POSSIBLE = "possible"
    JOURNAL_GAP = "journal_gap"
    """Something it has not read has been forgotten."""
    JOURNAL_OVERFLOW = "journal_overflow"
    CONFLICT = "conflict"
    """It claims to have read what was never sent."""


@dataclass(frozen=True, slots=True)
class ReplayOffer:
    """What the journal can do for a client that comes back."""

    replay: Replay
    oldest_seq: int | None = None
    """The oldest event that can be sent again; None when none ever can."""
    newest_seq: int | None = None


CAN_REPLAY: Final = ReplayOffer(Replay.POSSIBLE)


@dataclass(frozen=True, slots=True)
class Entry:
    """One frame as it was, or would have been, sent."""

    seq: int
    text: str
    n_bytes: int
    at_s: float


@dataclass(slots=True)
class ReplayJournal:
    """The newest frames of a session, bounded by bytes and by age in seconds."""

    max_bytes: int
    ttl_s: float
    newest_seq: int = 0
    is_overflowed: bool = False
    _entries: deque[Entry] = field(default_factory=deque)
    _n_bytes: int = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def n_bytes(self) -> int:
        """Bytes held."""
        return self._n_bytes

    @property
    def oldest_seq(self) -> int:
        """The oldest number that can be replayed; one after the newest when nothing is held."""
        return self._entries[0].seq if self._entries else self.newest_seq + 1

    def record(self, text: str, *, now: float) -> None:
        """Keep the text that carries number `newest_seq + 1`."""
        self.newest_seq += 1
        size = len(text) if text.isascii() else len(text.encode())
        self._entries.append(Entry(self.newest_seq, text, size, now))
        self._n_bytes += size
        self.expire(now=now)
        if self._n_bytes > self.max_bytes:
            self.is_overflowed = True
            self._entries.clear()
            self._n_bytes = 0

    def acknowledge(self, seq: int) -> None:
        """Forget everything up to `seq`."""
        while self._entries and self._entries[0].seq <= seq:
            self._n_bytes -= self._entries.popleft().n_bytes

    def expire(self, *, now: float) -> None:
        """Forget what is too old."""
        while self._entries and self._entries[0].at_s < now - self.ttl_s:
            self._n_bytes -= self._entries.popleft().n_bytes

    def offer(self, after_seq: int, *, now: float) -> ReplayOffer:
        """Say whether everything after `after_seq` can be sent again."""
        self.expire(now=now)
        if self.is_overflowed:
            return ReplayOffer(Replay.JOURNAL_OVERFLOW)
        if after_seq > self.newest_seq:
            replay = Replay.CONFLICT
        elif after_seq + 1 < self.oldest_seq:
            replay = Replay.JOURNAL_GAP
        else:
            replay = Replay.POSSIBLE
        return ReplayOffer(replay, self.oldest_seq, self.newest_seq)

    def after(self, seq: int) -> tuple[str, ...]:
        """Return the texts after `seq`, in order, each as it was."""
        return tuple(entry.text for entry in self._entries if entry.seq > seq)
