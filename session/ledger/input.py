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
from session.tools import ToolOutput


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
    tool_outputs: tuple[ToolOutput, ...] = ()

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
    texts: list[str] = field(default_factory=list)
    item_id: ItemId | None = None

    @property
    def text(self) -> str:
        """All text of the item."""
        return "".join(self.texts)

    @property
    def is_empty(self) -> bool:
        """Nothing to commit."""
        return self.audio_bytes == 0 and not self.texts


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
    _deferred: Turn | None = None
    _text_chars: int = 0
    _reservation: Reservation | None = None

    # --- reading ------------------------------------------------------------------------------

    @property
    def open_bytes(self) -> int:
        """Bytes in the open buffer."""
        return self._open_bytes

    @property
    def pending_bytes(self) -> int:
        """Bytes of audio we hold and have not got rid of."""
        turns = sum(turn.n_bytes for turn in self._turns)
        deferred = 0 if self._deferred is None else self._deferred.n_bytes
        return self._open_bytes + turns + deferred + self._reserved_bytes()

    @property
    def waiting_bytes(self) -> int:
        """Audio and text that wait: the subject of backpressure."""
        texts = sum(len(turn.text) for turn in self._turns)
        texts += sum(len(each.output) for turn in self._turns for each in turn.tool_outputs)
        return self.pending_bytes + self._text_chars + texts

    @property
    def pending_turns(self) -> int:
        """Committed turns that wait."""
        return len(self._turns)

    @property
    def has_deferred(self) -> bool:
        """Whether overlapping speech waits for the end of an answer."""
        return self._deferred is not None

    @property
    def has_wanted_turn(self) -> bool:
        """Whether a committed turn may be submitted now."""
        return any(turn.is_wanted for turn in self._turns)

    # --- coming in ------------------------------------------------------------------------------

    def add(self, span: Span, *, discard: str | None = None) -> None:
        """Take audio into the open buffer and item; or only count it, if it is not to be kept."""
        size = len(span.pcm)
        self.total_bytes += size
        if discard is not None:
            self.discarded[discard] += size
            return
        self._open.append(span)
        self._open_bytes += size
        self.open_item.audio_bytes += size

    def add_text(self, text: str) -> None:
        """Join text to the open item."""
        self.open_item.texts.append(text)
        self._text_chars += len(text)

    # --- becoming a turn -------------------------------------------------------------------------

    def commit_open(self, item_id: ItemId, *, is_wanted: bool) -> None:
        """Turn the open buffer and item into a committed turn."""
        self._turns.append(self._close_open(item_id, is_wanted=is_wanted))

    def add_text_turn(
        self, text: str, item_id: ItemId, *, tool_outputs: tuple[ToolOutput, ...] = ()
    ) -> None:
        """Add a turn that is only text, or what a function call returned."""
        self._turns.append(Turn((), text, item_id, is_wanted=False, tool_outputs=tool_outputs))

    def want_turns(self) -> None:
        """Ask for an answer to everything committed so far."""
        self._turns = deque(replace(turn, is_wanted=True) for turn in self._turns)

    def defer_open(self, item_id: ItemId) -> None:
        """Keep the open input for after the current answer, joined to earlier overlap."""
        turn = self._close_open(item_id, is_wanted=True)
        earlier = self._deferred
        if earlier is not None:
            text = " ".join(part for part in (earlier.text, turn.text) if part)
            turn = replace(turn, spans=earlier.spans + turn.spans, text=text)
        self._deferred = turn

    def promote_deferred(self) -> Turn:
        """Make the deferred overlap a committed turn that wants an answer."""
        turn, self._deferred = self._deferred, None
        if turn is None:
            raise LocalProtocolError("input ledger: nothing is deferred")
        self._turns.append(turn)
        return turn

    def drop_turn(self, item_id: ItemId) -> bool:
        """Forget a committed turn whose item was deleted; return whether there was one."""
        gone = [turn for turn in self._turns if turn.item_id == item_id]
        self._turns = deque(turn for turn in self._turns if turn.item_id != item_id)
        self.discarded["deleted"] += sum(turn.n_bytes for turn in gone)
        return bool(gone)

    # --- going out -------------------------------------------------------------------------------

    def reserve_turns(self) -> Reservation:
        """Reserve all wanted turns as one piece of input."""
        self._need_free()
        wanted = [turn for turn in self._turns if turn.is_wanted]
        self._turns = deque(turn for turn in self._turns if not turn.is_wanted)
        spans = tuple(span for turn in wanted for span in turn.spans)
        text = " ".join(turn.text for turn in wanted if turn.text)
        outputs = tuple(output for turn in wanted for output in turn.tool_outputs)
        turn = Turn(spans, text, wanted[-1].item_id, is_wanted=True, tool_outputs=outputs)
        self._reservation = Reservation(spans, turn)
        return self._reservation

    def reserve_open(self, n_bytes: int) -> Reservation:
        """Reserve the first `n_bytes` of the open buffer."""
        self._need_free()
        self._reservation = Reservation(self._take(n_bytes))
        return self._reservation

    def settle(self, *, discard: str | None = None) -> None:
        """The model has consumed the reservation, or it can not be consumed for a reason."""
        if discard is None:
            self.accepted_bytes += self._reserved_bytes()
        else:
            self.discarded[discard] += self._reserved_bytes()
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
            self._renew_item()

    def discard_waiting(self, reason: str) -> None:
        """Drop everything that is not at the model: buffer, turns, deferred overlap."""
        self.discard_open(reason)
        turns = [*self._turns, *([] if self._deferred is None else [self._deferred])]
        self.discarded[reason] += sum(turn.n_bytes for turn in turns)
        self._deferred = None
        self._turns.clear()

    # --- law 1 ------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Raise LocalProtocolError unless every byte is in exactly one place."""
        placed = self.pending_bytes + self.accepted_bytes + self.discarded.total()
        if placed != self.total_bytes or self._open_bytes != _size(self._open):
            raise LocalProtocolError(f"input ledger: {self.total_bytes} in, {placed} placed")

    def _close_open(self, item_id: ItemId, *, is_wanted: bool) -> Turn:
        turn = Turn(tuple(self._open), self.open_item.text, item_id, is_wanted)
        self._open.clear()
        self._open_bytes = 0
        self._renew_item()
        return turn

    def _renew_item(self) -> None:
        self.open_item = OpenItem()
        self._text_chars = 0

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
