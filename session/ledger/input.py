"""The input ledger: where every byte of user audio is.

Rule 1: every byte that came in is in exactly one place: open buffer, committed turn, reservation,
        accepted by the model, deferred overlap, or discarded for a stated reason.
Rule 2: at most one reservation exists; rolled back, it returns to the front, in order.
Rule 3: the open item describes what the next commit would make an item of; streaming its bytes to
        the model does not empty it.
"""

from collections import Counter, deque
from dataclasses import dataclass, field, replace

from session.errors import LocalProtocolError
from session.ids import ItemId


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive PCM with one set of flags."""

    pcm: bytes
    is_speech: bool = False
    force_listen: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """A committed input that waits for the model; its bytes are still ours."""

    spans: tuple[Span, ...]
    text: str
    item_id: ItemId | None
    is_wanted: bool
    """An answer was asked for, so it may be submitted."""

    @property
    def n_bytes(self) -> int:
        """Audio bytes held."""
        return sum(len(span.pcm) for span in self.spans)


@dataclass(frozen=True, slots=True)
class Reservation:
    """Input on its way to the model."""

    spans: tuple[Span, ...]
    turn: Turn | None = None
    """Set when a committed turn is submitted whole."""

    @property
    def pcm(self) -> bytes:
        """All audio of the reservation."""
        return b"".join(span.pcm for span in self.spans)

    @property
    def is_speech(self) -> bool:
        """Whether any part was speech."""
        return any(span.is_speech for span in self.spans)

    @property
    def force_listen(self) -> bool:
        """Whether any part asked the model to listen."""
        return any(span.force_listen for span in self.spans)


@dataclass(slots=True)
class OpenItem:
    """What has come in since the last commit or clear."""

    audio_bytes: int = 0
    has_speech: bool = False
    text: str = ""
    item_id: ItemId | None = None

    @property
    def is_empty(self) -> bool:
        """Nothing to commit."""
        return self.audio_bytes == 0 and not self.text


@dataclass(slots=True)
class InputLedger:
    """All input of one session."""

    total_bytes: int = 0
    accepted_bytes: int = 0
    discarded: Counter[str] = field(default_factory=Counter)
    open_item: OpenItem = field(default_factory=OpenItem)
    _open: deque[Span] = field(default_factory=deque)
    _open_bytes: int = 0
    _turns: deque[Turn] = field(default_factory=deque)
    _deferred: deque[Span] = field(default_factory=deque)
    _reservation: Reservation | None = None

    # --- reading ------------------------------------------------------------------------------

    @property
    def open_bytes(self) -> int:
        """Bytes in the open buffer."""
        return self._open_bytes

    @property
    def pending_bytes(self) -> int:
        """Bytes we hold and have not got rid of: the subject of backpressure."""
        turns = sum(turn.n_bytes for turn in self._turns)
        return self._open_bytes + turns + _size(self._deferred) + self._reserved_bytes()

    @property
    def pending_turns(self) -> int:
        """Committed turns that wait."""
        return len(self._turns)

    @property
    def has_deferred(self) -> bool:
        """Whether overlapping speech waits for the end of an answer."""
        return bool(self._deferred)

    @property
    def has_wanted_turn(self) -> bool:
        """Whether a committed turn may be submitted now."""
        return any(turn.is_wanted for turn in self._turns)

    # --- coming in ------------------------------------------------------------------------------

    def add(self, span: Span) -> None:
        """Take audio into the open buffer and the open item."""
        size = len(span.pcm)
        self.total_bytes += size
        self._open.append(span)
        self._open_bytes += size
        self.open_item.audio_bytes += size
        self.open_item.has_speech = self.open_item.has_speech or span.is_speech

    def refuse(self, n_bytes: int, reason: str) -> None:
        """Count audio that was looked at and deliberately not kept."""
        self.total_bytes += n_bytes
        self.discarded[reason] += n_bytes

    # --- becoming a turn -------------------------------------------------------------------------

    def commit_open(self, item_id: ItemId, *, is_wanted: bool) -> None:
        """Turn the open buffer and item into a committed turn."""
        spans = tuple(self._open)
        self._open.clear()
        self._open_bytes = 0
        self._turns.append(Turn(spans, self.open_item.text, item_id, is_wanted))
        self.open_item = OpenItem()

    def add_text_turn(self, text: str, item_id: ItemId) -> None:
        """Add a turn that is only text."""
        self._turns.append(Turn((), text, item_id, is_wanted=False))

    def want_turns(self) -> None:
        """Ask for an answer to everything committed so far."""
        self._turns = deque(replace(turn, is_wanted=True) for turn in self._turns)

    def defer_open(self) -> None:
        """Keep the open buffer for after the current answer, joined to earlier overlap."""
        self._deferred.extend(self._open)
        self._open.clear()
        self._open_bytes = 0
        self.open_item = OpenItem()

    def promote_deferred(self, item_id: ItemId, *, is_wanted: bool) -> None:
        """Make the deferred overlap a committed turn."""
        self._turns.append(Turn(tuple(self._deferred), "", item_id, is_wanted))
        self._deferred.clear()

    # --- going out -------------------------------------------------------------------------------

    def reserve_turns(self) -> Reservation:
        """Reserve all wanted turns as one piece of input."""
        self._need_free()
        wanted = [turn for turn in self._turns if turn.is_wanted]
        self._turns = deque(turn for turn in self._turns if not turn.is_wanted)
        spans = tuple(span for turn in wanted for span in turn.spans)
        text = " ".join(turn.text for turn in wanted if turn.text)
        turn = Turn(spans, text, wanted[-1].item_id, is_wanted=True)
        self._reservation = Reservation(spans, turn)
        return self._reservation

    def reserve_open(self, n_bytes: int) -> Reservation:
        """Reserve the first `n_bytes` of the open buffer."""
        self._need_free()
        self._reservation = Reservation(self._take(n_bytes))
        return self._reservation

    def accept(self) -> None:
        """The model has consumed the reservation."""
        self.accepted_bytes += self._reserved_bytes()
        self._reservation = None

    def roll_back(self, *, keeps_wanted: bool = True) -> None:
        """The reservation was not consumed: put it back in front.

        Without `keeps_wanted` a committed turn waits until an answer is asked for again.
        """
        reservation, self._reservation = self._reservation, None
        if reservation is None:
            return
        if reservation.turn is not None:
            self._turns.appendleft(replace(reservation.turn, is_wanted=keeps_wanted))
            return
        self._open.extendleft(reversed(reservation.spans))
        self._open_bytes += _size(reservation.spans)

    def discard_reservation(self, reason: str) -> None:
        """The reservation can not be consumed at all."""
        self.discarded[reason] += self._reserved_bytes()
        self._reservation = None

    # --- being dropped ----------------------------------------------------------------------------

    def discard_open(self, reason: str, *, keep_bytes: int = 0) -> None:
        """Drop the open buffer and item, or the oldest of it so that `keep_bytes` stay.

        What the model already has stays with the model.
        """
        surplus = max(0, self._open_bytes - keep_bytes)
        self._take(surplus)
        self.discarded[reason] += surplus
        if keep_bytes:
            self.open_item.audio_bytes -= surplus
        else:
            self.open_item = OpenItem()

    def discard_waiting(self, reason: str) -> None:
        """Drop everything that is not at the model: buffer, turns, deferred overlap."""
        self.discard_open(reason)
        self.discarded[reason] += _size(self._deferred)
        self.discarded[reason] += sum(turn.n_bytes for turn in self._turns)
        self._deferred.clear()
        self._turns.clear()

    # --- law 1 ------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Raise LocalProtocolError unless every byte is in exactly one place."""
        placed = self.pending_bytes + self.accepted_bytes + self.discarded.total()
        if placed != self.total_bytes or self._open_bytes != _size(self._open):
            raise LocalProtocolError(f"input ledger: {self.total_bytes} in, {placed} placed")

    def _take(self, n_bytes: int) -> tuple[Span, ...]:
        taken: list[Span] = []
        missing = n_bytes
        while missing > 0:
            span = self._open.popleft()
            if len(span.pcm) > missing:
                self._open.appendleft(replace(span, pcm=span.pcm[missing:]))
                span = replace(span, pcm=span.pcm[:missing])
            taken.append(span)
            missing -= len(span.pcm)
        self._open_bytes -= n_bytes
        return tuple(taken)

    def _reserved_bytes(self) -> int:
        return _size(self._reservation.spans) if self._reservation is not None else 0

    def _need_free(self) -> None:
        if self._reservation is not None:
            raise LocalProtocolError("input ledger: a reservation is already out")


def _size(spans: deque[Span] | tuple[Span, ...]) -> int:
    return sum(len(span.pcm) for span in spans)
