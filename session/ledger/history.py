"""The history ledger: the conversation as both sides remember it.

Rule 1: an answer takes its place when it begins; later acknowledgements change its text, never
        its place.
Rule 2: what counts as said by the assistant is what was heard of it.
Rule 3: of too many items the one that came first is forgotten, wherever its place is.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import dropwhile, islice
from typing import Final

from session.ids import ItemId, ResponseId

FRONT: Final = ItemId("root")
"""The wire's name for the place before the first item."""
KEPT_ITEMS: Final = 512
"""Older items are forgotten, so that a session of hours does not grow."""


@dataclass(frozen=True, slots=True)
class Item:
    """One entry. For an answer `text` is what was heard and `full_text` what was spoken."""

    item_id: ItemId
    role: str
    text: str
    full_text: str = ""
    is_audio: bool = False
    is_done: bool = True
    response_id: ResponseId | None = None
    call_id: str | None = None
    """Of a function call, or of its output."""
    call_name: str | None = None
    """Set for a function call, whose arguments are `text`."""
    is_truncated: bool = False
    is_cut: bool = False
    """Its limit of tokens came before its end."""
    audio_ms: int = 0


def message_id(response_id: ResponseId) -> ItemId:
    """Return the id of the message of an answer; the wire promises this form."""
    return ItemId(f"item_{response_id}")


@dataclass(slots=True)
class HistoryLedger:
    """Items in order."""

    _items: dict[ItemId, Item] = field(default_factory=dict)
    _arrived: dict[ItemId, None] = field(default_factory=dict)
    """The same ids in the order in which they came."""

    def __len__(self) -> int:
        return len(self._items)

    @property
    def items(self) -> tuple[Item, ...]:
        """All items, oldest first."""
        return tuple(self._items.values())

    @property
    def last_id(self) -> ItemId | None:
        """Id of the newest item."""
        return next(reversed(self._items), None)

    def get(self, item_id: ItemId) -> Item | None:
        """Return an item, or None."""
        return self._items.get(item_id)

    def after(self, item_id: ItemId) -> Iterator[ItemId]:
        """Give the ids of the items that follow an item, oldest first."""
        followers = dropwhile(lambda each: each != item_id, self._items)
        return islice(followers, 1, None)

    def of_response(self, response_id: ResponseId) -> Item | None:
        """Return the item of an answer, or None."""
        item = self._items.get(message_id(response_id))
        # A client may have named an item of its own like that.
        return item if item is not None and item.response_id == response_id else None

    def add(self, item: Item, *, after: ItemId | None = None) -> None:
        """Append an item, or insert it behind `after`; behind FRONT means before all others."""
        if after == FRONT:
            self._items = {item.item_id: item, **self._items}
        elif after is None or after not in self._items or after == self.last_id:
            self._items[item.item_id] = item
        else:
            self._items = _inserted(self._items, item, after)
        self._arrived[item.item_id] = None
        while len(self._items) > KEPT_ITEMS:
            self.remove(next(iter(self._arrived)))

    def change(self, item_id: ItemId, **changes: object) -> None:
        """Replace fields of an item in place; an item that is gone stays gone."""
        item = self._items.get(item_id)
        if item is not None:
            self._items[item_id] = replace(item, **changes)  # type: ignore[arg-type]  # own callers

    def remove(self, item_id: ItemId) -> None:
        """Forget an item."""
        self._items.pop(item_id, None)
        self._arrived.pop(item_id, None)


def _inserted(items: dict[ItemId, Item], item: Item, after: ItemId) -> dict[ItemId, Item]:
    result: dict[ItemId, Item] = {}
    for item_id, existing in items.items():
        result[item_id] = existing
        if item_id == after:
            result[item.item_id] = item
    return result
