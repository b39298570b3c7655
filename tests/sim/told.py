"""The law of messages: each is told once, and none is lost."""

from collections.abc import Iterable

from session.ids import ItemId
from session.unit import Unit
from tests.sim.violation import Violation

APART = "apart"
"""What the text of an answer apart begins with, in a simulation."""


class Told:
    """Messages of one session: those that came, went away, and were told."""

    def __init__(self) -> None:
        self._items: dict[ItemId, str] = {}
        self._waiting: set[str] = set()
        self._told: set[str] = set()

    def came(self, item_id: ItemId, text: str) -> None:
        """The client was told that its message is an item now."""
        self._items[item_id] = text
        self._waiting.add(text)

    def removed(self, item_id: ItemId) -> None:
        """An item was deleted; if it is a message that is not told, it need not be any more."""
        self._waiting.discard(self._items.pop(item_id, ""))

    def take(self, unit: Unit) -> None:
        """The model has consumed a unit."""
        texts = [each.text for each in unit.messages if each.role != "user"]
        if unit.is_fresh:
            if any(unit.pcm) or not all(each.text.startswith(APART) for each in unit.messages):
                raise Violation("law 15: an answer apart is told what others said")
            return
        again = self._told.intersection(texts)
        if again or len(set(texts)) < len(texts):
            raise Violation(f"law 15: told twice: {again or texts}")
        self._told.update(texts)
        self._waiting.difference_update(texts)

    def check(self, held: Iterable[str]) -> None:
        """Everything that has not been told is held somewhere."""
        lost = self._waiting.difference(held)
        if lost:
            raise Violation(f"law 15: messages are lost: {lost}")
