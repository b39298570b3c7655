"""What a model is told about a conversation apart from what is said in it now."""

from dataclasses import dataclass

from session.ids import ItemId


@dataclass(frozen=True, slots=True)
class ContextMessage:
    """A message that the model knows of without having to answer it."""

    role: str
    """system, user or assistant."""
    text: str


@dataclass(frozen=True, slots=True)
class ItemReference:
    """Stands for a message of the conversation, by its id."""

    item_id: ItemId
