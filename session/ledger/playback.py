"""The playback ledger: how much of each answer was made, sent, played and heard for good.

Rule 1: committed <= played <= sent <= generated, in milliseconds, each monotonic per answer.
Rule 2: an acknowledgement beyond what was sent counts as what was sent.
Rule 3: a truncation caps what was heard, and the smallest of several holds. Cursors never go
        back; what was heard is the smaller of the cursor and the cap.
Rule 4: the memory is bounded. An answer whose cursors are gone is still known by its id for long,
        so that a late acknowledgement of it is told from one of an answer that never was.
Durations are kept in samples and shown in whole milliseconds, so nothing drifts.
"""

import math
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from session.errors import LocalProtocolError
from session.ids import ResponseId
from session.item_events import (
    TextMark,
)
from session.snapshot import Playback
from session.unit import OUTPUT_RATE_HZ, samples_to_ms

KEPT_ANSWERS: Final = 64
"""Cursors of older answers are dropped: nobody acknowledges that late."""
KEPT_IDS: Final = 128
"""Ids of answers whose cursors were dropped."""


@dataclass(slots=True)
class Cursor:
    """Playback of one answer."""

    samples: int = 0
    text_chars: int = 0
    played_ms: int = 0
    committed_ms: int = 0
    cap_ms: int | None = None
    is_flushed: bool = False
    """The client was told to drop what it has not played."""
    has_place: bool = False
    """The answer has a place in the history; without one, it never gets any."""
    last_sent_at_s: float = 0.0
    plays_until_s: float = 0.0
    """When a client that plays what it gets, without pause, will have played it all."""
    marks: list[TextMark] = field(default_factory=list)

    @property
    def sent_ms(self) -> int:
        """Audio handed to the client."""
        return samples_to_ms(self.samples, OUTPUT_RATE_HZ)

    @property
    def heard_ms(self) -> int:
        """How much of it was heard for good."""
        return self.committed_ms if self.cap_ms is None else min(self.committed_ms, self.cap_ms)

    @property
    def is_pending(self) -> bool:
        """Whether an acknowledgement is still due."""
        return not self.is_flushed and self.committed_ms < self.sent_ms

    @property
    def end_ms(self) -> int:
        """Where its audio ends: what was sent, or the cut."""
        return self.sent_ms if self.cap_ms is None else min(self.sent_ms, self.cap_ms)

    @property
    def longest_cut_ms(self) -> int:
        """The furthest place that a client may cut at: one that rounds up names a last millisecond
        of which not every sample was sent."""
        if self.end_ms < self.sent_ms:
            return self.end_ms
        return -(-self.samples * 1000 // OUTPUT_RATE_HZ)

    def chars_by(self, heard_ms: int) -> int:
        """How many characters of the transcript are spoken by `heard_ms`."""
        before = TextMark(0, 0)
        for mark in self.marks:
            if mark.audio_end_ms > heard_ms:
                span_ms = mark.audio_end_ms - before.audio_end_ms
                share = (heard_ms - before.audio_end_ms) / span_ms
                return before.text_chars + int((mark.text_chars - before.text_chars) * share)
            before = mark
        return before.text_chars

    def heard_of(self, text: str) -> str:
        """Return the part of the answer's `text` that was heard for good, in whole words."""
        return whole_words(text, self.chars_by(self.heard_ms))

    def view(self) -> Playback:
        """Return the cursors as a value."""
        return Playback(self.sent_ms, self.sent_ms, self.played_ms, self.committed_ms)


@dataclass(slots=True)
class PlaybackLedger:
    """Cursors by answer, oldest first."""

    _cursors: "OrderedDict[ResponseId, Cursor]" = field(default_factory=OrderedDict)
    _past: "OrderedDict[ResponseId, None]" = field(default_factory=OrderedDict)
    _pending: dict[ResponseId, None] = field(default_factory=dict)
    """Those that wait for an acknowledgement: asked for at every stimulus, mostly none or one."""

    def open(self, response_id: ResponseId) -> None:
        """Start the cursors of an answer."""
        self._cursors[response_id] = Cursor()
        while len(self._cursors) > KEPT_ANSWERS:
            oldest_id, _ = self._cursors.popitem(last=False)
            self._pending.pop(oldest_id, None)
            self._past[oldest_id] = None
        while len(self._past) > KEPT_IDS:
            self._past.popitem(last=False)

    def send(self, response_id: ResponseId, *, samples: int, text_chars: int, now: float) -> Cursor:
        """Count a chunk of `samples` that adds `text_chars` to the transcript."""
        cursor = self._cursors[response_id]
        cursor.samples += samples
        cursor.text_chars += text_chars
        cursor.last_sent_at_s = now
        cursor.plays_until_s = max(cursor.plays_until_s, now) + samples / OUTPUT_RATE_HZ
        if cursor.samples and (samples or text_chars):
            cursor.marks.append(TextMark(cursor.text_chars, cursor.sent_ms))
        self._note_pending(response_id, cursor)
        return cursor

    def acknowledge(
        self, response_id: ResponseId, *, played_ms: int, committed_ms: int | None
    ) -> Playback:
        """Advance the cursors as far as the acknowledgement and the cap allow."""
        cursor = self._cursors[response_id]
        limit = cursor.end_ms
        cursor.played_ms = max(cursor.played_ms, min(played_ms, limit))
        wanted = played_ms if committed_ms is None else committed_ms
        cursor.committed_ms = max(cursor.committed_ms, min(wanted, cursor.played_ms))
        self._note_pending(response_id, cursor)
        return cursor.view()

    def play_until(self, response_id: ResponseId, *, now: float) -> bool:
        """Count as heard what a client that plays without pause has played of a pending answer.

        Returns whether that is news.
        """
        cursor = self._cursors[response_id]
        left_ms = math.ceil(max(0.0, cursor.plays_until_s - now) * 1000)
        before_ms = cursor.committed_ms
        played_ms = max(0, cursor.sent_ms - left_ms)
        self.acknowledge(response_id, played_ms=played_ms, committed_ms=played_ms)
        return cursor.committed_ms > before_ms

    def commit_all(self, response_id: ResponseId) -> Playback:
        """Count everything sent as heard."""
        sent_ms = self._cursors[response_id].sent_ms
        return self.acknowledge(response_id, played_ms=sent_ms, committed_ms=sent_ms)

    def cap(self, response_id: ResponseId, audio_end_ms: int) -> None:
        """Nothing after `audio_end_ms` was heard, whatever is acknowledged later."""
        cursor = self._cursors[response_id]
        cursor.cap_ms = audio_end_ms if cursor.cap_ms is None else min(cursor.cap_ms, audio_end_ms)
        self.flush(response_id)

    def flush(self, response_id: ResponseId) -> None:
        """The client drops what it has not played; how far it got, it will still tell."""
        self._cursors[response_id].is_flushed = True
        self._pending.pop(response_id, None)

    def cursor(self, response_id: ResponseId) -> Cursor:
        """Return the cursors of an answer that is known."""
        return self._cursors[response_id]

    def knows(self, response_id: ResponseId) -> bool:
        """Whether cursors of this answer are kept."""
        return response_id in self._cursors

    def is_past(self, response_id: ResponseId) -> bool:
        """Whether there were cursors of this answer once."""
        return response_id in self._past

    @property
    def sole_pending(self) -> ResponseId | None:
        """The one answer that waits for an acknowledgement; None when there is none, or several."""
        pending = self.pending
        return pending[0] if len(pending) == 1 else None

    @property
    def pending(self) -> list[ResponseId]:
        """The answers that wait for an acknowledgement, oldest first."""
        return list(self._pending)

    def view(self, response_id: ResponseId | None) -> Playback:
        """Return an answer's cursors; zeros for an unknown one."""
        cursor = self._cursors.get(response_id) if response_id is not None else None
        return cursor.view() if cursor is not None else Playback()

    def marks(self, response_id: ResponseId) -> tuple[TextMark, ...]:
        """Return which text is spoken by when."""
        return tuple(self._cursors[response_id].marks)

    def outstanding(self, response_id: ResponseId | None, *, now: float) -> bool:
        """Whether the client is probably still playing this answer.

        A client that never acknowledges can not play longer than what it was sent, plus a margin
        for its buffer.
        """
        cursor = self._cursors.get(response_id) if response_id is not None else None
        if cursor is None or cursor.is_flushed or cursor.committed_ms >= cursor.sent_ms:
            return False
        left_s = (cursor.sent_ms - cursor.played_ms) / 1000
        return now <= cursor.last_sent_at_s + left_s + PLAYBACK_MARGIN_S

    def heard_at(self, response_id: ResponseId | None) -> float:
        """When the client will have played all of an answer; long ago when there is nothing left.

        An acknowledgement that all was heard ends it early.
        """
        cursor = self._cursors.get(response_id) if response_id is not None else None
        if cursor is None or cursor.is_flushed or cursor.committed_ms >= cursor.sent_ms:
            return 0.0
        return cursor.plays_until_s

    def validate(self) -> None:
        """Raise LocalProtocolError unless the cursors are in order."""
        for response_id, cursor in self._cursors.items():
            if not 0 <= cursor.committed_ms <= cursor.played_ms <= cursor.sent_ms:
                raise LocalProtocolError(f"playback ledger: cursors of {response_id} out of order")
        if self.pending != [each for each, cursor in self._cursors.items() if cursor.is_pending]:
            raise LocalProtocolError(f"playback ledger: {self.pending} are not what is pending")

    def _note_pending(self, response_id: ResponseId, cursor: Cursor) -> None:
        if cursor.is_pending:
            self._pending[response_id] = None
        else:
            self._pending.pop(response_id, None)


PLAYBACK_MARGIN_S: Final = 2.0
WORD_ENDS: Final = ".,;:!?"


def whole_words(text: str, chars: int) -> str:
    """Return the first `chars` of `text`, without a word that is cut in the middle.

    A word that was half heard was not heard.
    """
    if chars >= len(text):
        return text
    head = text[:chars]
    if text[chars].isspace() or text[chars] in WORD_ENDS:
        return head.rstrip()
    space = max(head.rfind(" "), head.rfind("\n"), 0)
    return head[:space].rstrip()
