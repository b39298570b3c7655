"""Committed turns and messages that wait for the model, in the order of their items.

Rule 1: what goes out is a run from the front: nothing overtakes.
Rule 2: a message asks for nothing. It goes out with whatever comes after it, in front of that.
Rule 3: a request is nobody's item. It goes out behind what it was made with, or alone if its
        answer sees nothing else, and it does not come back: it is gone with its answer.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from session.context import ContextMessage
from session.ids import ItemId
from session.ledger.spans import Reservation, Span, Turn


@dataclass(slots=True)
class TurnQueue:
    """Turns and messages by their place, and what asks without being either."""

    _turns: deque[Turn] = field(default_factory=deque)
    _request: Turn | None = None

    @property
    def waiting(self) -> tuple[Turn, ...]:
        """Everything that waits, but for the request."""
        return tuple(self._turns)

    @property
    def answerable(self) -> int:
        """Turns that can be answered: no messages."""
        return sum(turn.message is None for turn in self._turns)

    @property
    def chars(self) -> int:
        """Size of all text that waits."""
        request = [] if self._request is None else [self._request]
        return sum(turn.chars for turn in [*self._turns, *request])

    @property
    def is_wanted(self) -> bool:
        """Whether an answer has been asked for that has not gone out."""
        return self._request is not None or any(
            turn.is_wanted and turn.message is None for turn in self._turns
        )

    @property
    def has_several_spoken(self) -> bool:
        """Whether more than one spoken turn would go out for the answer that was asked for."""
        if self._request is not None and self._request.is_fresh:
            return False
        asked = islice(self._turns, self._wanted_length())
        return sum(bool(turn.spans) for turn in asked) > 1

    def _wanted_length(self) -> int:
        """How many from the front an answer was asked for, and all that is before those."""
        wanted = [at for at, turn in enumerate(self._turns, 1) if turn.is_wanted]
        return wanted[-1] if wanted else 0

    def holds(self, item_id: ItemId) -> bool:
        """Whether the item waits here."""
        return any(turn.item_id == item_id for turn in self._turns)

    # --- coming in ------------------------------------------------------------------------------

    def add(self, turn: Turn, *, before: ItemId | None = None) -> None:
        """Add a turn at the end, or in front of the one that is `before`."""
        places = (at for at, waits in enumerate(self._turns) if waits.item_id == before)
        at = len(self._turns) if before is None else next(places, len(self._turns))
        self._turns.insert(at, turn)

    def want(self) -> None:
        """Ask for an answer to all of them."""
        self._turns = deque(replace(turn, is_wanted=True) for turn in self._turns)

    def unwant(self) -> None:
        """Let all of them wait until an answer is asked for again."""
        self._turns = deque(replace(turn, is_wanted=False) for turn in self._turns)

    def ask(self, request: Turn) -> None:
        """Let a request go out."""
        self._request = request

    def put_back(self, parts: Sequence[Turn]) -> None:
        """Return what has not been consumed to the front."""
        self._turns.extendleft(reversed(parts))

    def rejoin(self, serial: int, spans: tuple[Span, ...]) -> bool:
        """Give audio back to the turn that its item has become; return whether that is here."""
        for at, turn in enumerate(self._turns):
            if turn.serial == serial and turn.message is None:
                self._turns[at] = replace(turn, spans=spans + turn.spans)
                return True
        return False

    # --- going out ------------------------------------------------------------------------------

    def take_wanted(self) -> Reservation:
        """Take what an answer was asked for, and all that was there before it, as one turn."""
        request, self._request = self._request, None
        if request is not None and request.is_fresh:
            return Reservation((), request)
        parts = [self._turns.popleft() for _ in range(self._wanted_length())]
        turn = _joined(parts)
        if all(part.message is not None for part in parts):
            turn = replace(turn, item_id=None, is_bare=True)
        return Reservation(turn.spans, turn, parts=tuple(parts))

    def take_unheard(self) -> Reservation | None:
        """Take the oldest turn, if it is spoken, with the messages in front of it."""
        places = (at for at, turn in enumerate(self._turns) if turn.message is None)
        at = next(places, None)
        if at is None or not self._turns[at].spans:
            return None
        parts = [self._turns.popleft() for _ in range(at + 1)]
        turn = _joined(parts)
        return Reservation(turn.spans, turn, parts=tuple(parts), is_heard_only=True)

    def take_messages(self) -> tuple[Turn, ...]:
        """Take the messages that nothing else waits in front of."""
        taken: list[Turn] = []
        while self._turns and self._turns[0].message is not None:
            taken.append(self._turns.popleft())
        return tuple(taken)

    # --- being dropped --------------------------------------------------------------------------

    def drop_request(self) -> None:
        """Let a request that has not gone out be forgotten."""
        self._request = None

    def drop(self, item_id: ItemId) -> list[Turn]:
        """Take out a turn whose item was deleted."""
        gone = [turn for turn in self._turns if turn.item_id == item_id]
        self._turns = deque(turn for turn in self._turns if turn.item_id != item_id)
        return gone

    def drop_said(self) -> None:
        """Drop what the user said. Messages, and what function calls returned, stay."""
        self._request = None
        kept = [turn for turn in self._turns if turn.tool_outputs or turn.message is not None]
        self._turns = deque(replace(turn, spans=(), text="") for turn in kept)


def messages_of(parts: Sequence[Turn]) -> tuple[Turn, ...]:
    """Return those that are messages, no longer wanted by an answer."""
    return tuple(replace(part, is_wanted=False) for part in parts if part.message is not None)


def _joined(parts: Sequence[Turn]) -> Turn:
    """Join turns to one: texts that were written before a message become messages, too."""
    ends = [at + 1 for at, part in enumerate(parts) if part.message is not None]
    split = ends[-1] if ends else 0
    last = parts[-1] if parts else None
    return Turn(
        spans=tuple(span for part in parts for span in part.spans),
        text=" ".join(part.text for part in parts[split:] if part.text),
        item_id=None if last is None else last.item_id,
        is_wanted=True,
        serial=-1 if last is None else last.serial,
        tool_outputs=tuple(output for part in parts for output in part.tool_outputs),
        messages=tuple(message for part in parts[:split] for message in _told(part)),
    )


def _told(part: Turn) -> tuple[ContextMessage, ...]:
    if part.message is not None:
        return (part.message,)
    return (ContextMessage("user", part.text),) if part.text else ()
