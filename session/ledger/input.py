"""The input ledger: where every byte of user audio, and every camera frame with it, is.

Rule 1: every byte that came in is in exactly one place: open buffer, committed turn, reservation,
        accepted by the model, deferred overlap, or discarded for a stated reason. So is every
        camera frame: it goes where the first byte of its append goes.
Rule 2: at most one reservation exists; rolled back, it returns to the front, in order. Audio of an
        item that was committed meanwhile returns to that item's turn.
Rule 3: the open item describes what the next commit would make an item of; streaming its bytes to
        the model does not empty it.
"""

from collections import Counter, deque
from dataclasses import dataclass, field, replace

from session.errors import LocalProtocolError
from session.fence import Fence
from session.ids import ItemId
from session.ledger.spans import (
    Reservation,
    Span,
    Turn,
    frame_bytes,
    frame_count,
    pcm_bytes,
)
from session.ledger.turns import TurnQueue, messages_of
from session.tools import ToolOutput


@dataclass(slots=True)
class OpenItem:
    """What has come in since the last commit or clear."""

    serial: int = 0
    audio_bytes: int = 0
    speech_bytes: int = 0
    """Audio that is speech as far as anybody knows; silence by anyone's opinion does not count."""
    texts: list[str] = field(default_factory=list)
    item_id: ItemId | None = None
    target: Fence | None = None
    """The model turn that an item over an answer has reserved."""
    has_failed: bool = False
    """The model could not take the audio that came last."""

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
    """Audio of the stream: what has been appended since the session began."""
    item_bytes: int = 0
    """Audio that came with items."""
    accepted_bytes: int = 0
    discarded: Counter[str] = field(default_factory=Counter)
    total_frames: int = 0
    accepted_frames: int = 0
    discarded_frames: Counter[str] = field(default_factory=Counter)
    open_item: OpenItem = field(default_factory=OpenItem)
    queue: TurnQueue = field(default_factory=TurnQueue)
    """What was committed and waits."""
    _open: deque[Span] = field(default_factory=deque)
    _open_bytes: int = 0
    _frame_bytes: int = 0
    """Size of the frames that are held, wherever they are."""
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
        turns = sum(turn.n_bytes for turn in self._waiting_turns())
        return self._open_bytes + turns + pcm_bytes(self._reserved())

    @property
    def waiting_bytes(self) -> int:
        """Audio, camera frames and text that wait: the subject of backpressure."""
        texts = self.queue.chars + (0 if self._deferred is None else self._deferred.chars)
        return self.pending_bytes + self._frame_bytes + self._text_chars + texts

    @property
    def waits_from_byte(self) -> int:
        """Where the oldest audio of the stream that has not gone out begins, or else its end."""
        turns = (turn for turn in self._waiting_turns() if not turn.is_whole)
        waiting = [*self._open, *(span for turn in turns for span in turn.spans)]
        return min((span.start_byte for span in waiting), default=self.total_bytes)

    @property
    def pieces(self) -> int:
        """Appends that wait, however small."""
        turns = sum(len(turn.spans) for turn in self._waiting_turns())
        return len(self._open) + turns + len(self.open_item.texts)

    @property
    def turns(self) -> int:
        """Everything committed that waits for an answer."""
        return self.queue.answerable

    @property
    def waiting_items(self) -> int:
        """Items that wait, those that nobody has to answer too."""
        return len(self.queue.waiting)

    @property
    def pending_turns(self) -> int:
        """Spoken turns that wait, deferred overlap included."""
        return sum(bool(turn.spans) for turn in self.queue.waiting) + int(self.has_deferred)

    @property
    def deferred_id(self) -> ItemId | None:
        """The item that overlapping speech will be."""
        return None if self._deferred is None else self._deferred.item_id

    @property
    def has_deferred(self) -> bool:
        """Whether overlapping speech waits for the end of an answer."""
        return self._deferred is not None

    @property
    def has_wanted_turn(self) -> bool:
        """Whether a committed turn, or a request without one, may be submitted now."""
        return self.queue.is_wanted

    # --- coming in ------------------------------------------------------------------------------

    @property
    def has_several_spoken(self) -> bool:
        """Whether an answer was asked for to more than one spoken item."""
        return self.queue.has_several_spoken

    def add(self, span: Span, *, discard: str | None = None) -> None:
        """Take audio into the open buffer and item; or only count it, if it is not to be kept."""
        span = replace(span, start_byte=self.total_bytes)
        size = len(span.pcm)
        self.total_bytes += size
        self.total_frames += frame_count((span,))
        self._frame_bytes += frame_bytes((span,))
        if discard is not None:
            self._drop((span,), discard)
            return
        if not span.pcm and not span.video_frames:
            return
        self._open.append(span)
        self._open_bytes += size
        self.open_item.audio_bytes += size
        self.open_item.has_failed = False

    def add_text(self, text: str) -> None:
        """Join text to the open item."""
        self.open_item.texts.append(text)
        self._text_chars += len(text)

    def add_item(self, turn: Turn, *, before: ItemId | None = None) -> None:
        """Take what the client made an item of; it goes out before the item that is `before`."""
        self.item_bytes += turn.n_bytes
        self.queue.add(turn, before=before)

    # --- becoming a turn -------------------------------------------------------------------------

    def commit_open(self, item_id: ItemId, *, is_wanted: bool) -> None:
        """Turn the open buffer and item into a committed turn."""
        self.queue.add(self._close_open(item_id, is_wanted=is_wanted))

    def defer_open(self, item_id: ItemId) -> None:
        """Keep the open input for after the current answer, joined to earlier overlap."""
        turn = self._close_open(item_id, is_wanted=True)
        earlier = self._deferred
        if earlier is not None:
            text = " ".join(part for part in (earlier.text, turn.text) if part)
            turn = replace(turn, spans=earlier.spans + turn.spans, text=text, serial=earlier.serial)
        self._deferred = turn

    def promote_deferred(self) -> Turn:
        """Make the deferred overlap a committed turn that wants an answer."""
        turn, self._deferred = self._deferred, None
        if turn is None:
            raise LocalProtocolError("input ledger: nothing is deferred")
        self.queue.add(turn)
        return turn

    def drop_turn(self, item_id: ItemId) -> bool:
        """Forget a committed turn whose item was deleted; return whether there was one.

        What has gone out does not come back, unless it is spoken: that audio has its place.
        """
        gone = self.queue.drop(item_id)
        for turn in gone:
            self._drop(turn.spans, "deleted")
        if self._reservation is not None:
            kept = (p for p in self._reservation.parts if p.spans or p.item_id != item_id)
            self._reservation = replace(self._reservation, parts=tuple(kept))
        return bool(gone)

    # --- going out -------------------------------------------------------------------------------

    def reserve_turns(self) -> Reservation:
        """Reserve all wanted turns as one piece of input.

        What was committed before them goes along: the model hears turns in the order they came.
        """
        self._need_free()
        self._reservation = self.queue.take_wanted()
        return self._reservation

    def reserve_unheard(self) -> Reservation | None:
        """Reserve the oldest turn to be heard and not answered; None if it is not spoken."""
        self._need_free()
        self._reservation = self.queue.take_unheard()
        return self._reservation

    def reserve_open(self, n_bytes: int) -> Reservation:
        """Reserve the first `n_bytes` of the open buffer, and the messages that come before it."""
        self._need_free()
        self._reservation = Reservation(
            self._take(n_bytes), serial=self.open_item.serial, parts=self.queue.take_messages()
        )
        return self._reservation

    def settle(self, *, discard: str | None = None) -> tuple[ToolOutput, ...]:
        """The model has consumed the reservation, or it can not be consumed for a reason.

        Messages of one that can not be consumed go with the next: they are not the reason.
        Returns the outputs of function calls that were in it.
        """
        reservation, self._reservation = self._reservation, None
        if reservation is None:
            return ()
        outputs = () if reservation.turn is None else reservation.turn.tool_outputs
        if discard is None:
            self.accepted_bytes += pcm_bytes(reservation.spans)
            self.accepted_frames += frame_count(reservation.spans)
            self._frame_bytes -= frame_bytes(reservation.spans)
        else:
            self._drop(reservation.spans, discard)
            self.queue.put_back(messages_of(reservation.parts))
            if reservation.turn is None and reservation.serial == self.open_item.serial:
                self.open_item.has_failed = True
        return outputs

    def roll_back(self, *, keeps_wanted: bool = True) -> None:
        """The reservation was not consumed: put it back in front.

        Without `keeps_wanted` committed turns wait until an answer is asked for again, those that
        had not gone out yet too: the answer that they were for is over.
        """
        reservation, self._reservation = self._reservation, None
        self.queue.put_back(() if reservation is None else reservation.parts)
        if not keeps_wanted:
            self.queue.unwant()
        if reservation is None or reservation.turn is not None:
            return
        if reservation.serial != self.open_item.serial:
            self._rejoin(reservation)
            return
        self._open.extendleft(reversed(reservation.spans))
        self._open_bytes += pcm_bytes(reservation.spans)

    # --- being dropped ----------------------------------------------------------------------------

    def discard_open(
        self, reason: str, *, keep_bytes: int | None = None, keep_from: int | None = None
    ) -> None:
        """Drop the open buffer and item; or only the oldest audio, and the item stays.

        `keep_bytes` says how much of the newest audio stays, `keep_from` from which byte of the
        session's input on. What the model already has stays with the model.
        """
        if keep_bytes is None and keep_from is None:
            self._drop(self._open, reason)
            self._open.clear()
            self._open_bytes = 0
            self._renew_item()
            return
        surplus = 0 if keep_bytes is None else max(0, self._open_bytes - keep_bytes)
        if keep_from is not None:
            surplus = max(surplus, self._bytes_before(keep_from))
        self._drop(self._take(surplus), reason)
        self.open_item.audio_bytes -= surplus

    def discard_waiting(self, reason: str) -> None:
        """Drop everything the user said that is not at the model: buffer, turns, deferred overlap.

        What function calls returned stays: the model waits for it. So do messages: the user did
        not say them.
        """
        self.discard_open(reason)
        for turn in self._waiting_turns():
            self._drop(turn.spans, reason)
        self._deferred = None
        self.queue.drop_said()

    # --- law 1 ------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Raise LocalProtocolError unless every byte and every frame is in exactly one place."""
        placed = self.pending_bytes + self.accepted_bytes + self.discarded.total()
        if placed != self.total_bytes + self.item_bytes or self._open_bytes != pcm_bytes(
            self._open
        ):
            raise LocalProtocolError(
                f"input ledger: {self.total_bytes} + {self.item_bytes} in, {placed} placed"
            )
        held = [*self._open, *self._reserved()]
        held += [span for turn in self._waiting_turns() for span in turn.spans]
        frames = frame_count(held) + self.accepted_frames + self.discarded_frames.total()
        if frames != self.total_frames or self._frame_bytes != frame_bytes(held):
            raise LocalProtocolError(f"input ledger: {self.total_frames} frames, {frames} placed")

    def _close_open(self, item_id: ItemId, *, is_wanted: bool) -> Turn:
        opened = self.open_item
        turn = Turn(tuple(self._open), opened.text, item_id, is_wanted, opened.serial)
        self._open.clear()
        self._open_bytes = 0
        self._renew_item()
        return turn

    def _renew_item(self) -> None:
        self.open_item = OpenItem(serial=self.open_item.serial + 1)
        self._text_chars = 0

    def _take(self, n_bytes: int) -> tuple[Span, ...]:
        taken: list[Span] = []
        missing = n_bytes
        takes_all = 0 < n_bytes == self._open_bytes
        while missing > 0:
            span = self._open.popleft()
            if len(span.pcm) > missing:
                span, rest = span.cut(missing)
                self._open.appendleft(rest)
            taken.append(span)
            missing -= len(span.pcm)
        if takes_all:
            taken += self._open  # frames whose audio has not come do not stay alone
            self._open.clear()
        self._open_bytes -= n_bytes
        return tuple(taken)

    def _bytes_before(self, start_byte: int) -> int:
        before = 0
        for span in self._open:
            if span.start_byte >= start_byte:
                break
            before += min(len(span.pcm), start_byte - span.start_byte)
        return before

    def _rejoin(self, reservation: Reservation) -> None:
        """Give audio back to the turn that its item has become, if that still waits."""
        if self.queue.rejoin(reservation.serial, reservation.spans):
            return
        deferred = self._deferred
        if deferred is not None and deferred.serial == reservation.serial:
            self._deferred = replace(deferred, spans=reservation.spans + deferred.spans)
            return
        self._drop(reservation.spans, "withdrawn")

    def _drop(self, spans: "deque[Span] | tuple[Span, ...]", reason: str) -> None:
        self.discarded[reason] += pcm_bytes(spans)
        self.discarded_frames[reason] += frame_count(spans)
        self._frame_bytes -= frame_bytes(spans)

    def _reserved(self) -> tuple[Span, ...]:
        return self._reservation.spans if self._reservation is not None else ()

    def _waiting_turns(self) -> list[Turn]:
        return [*self.queue.waiting, *([] if self._deferred is None else [self._deferred])]

    def _need_free(self) -> None:
        if self._reservation is not None:
            raise LocalProtocolError("input ledger: a reservation is already out")
