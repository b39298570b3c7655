"""What a client shall learn of the items of its conversation; the rest is in `events`."""

from dataclasses import dataclass

from session.ids import ItemId


@dataclass(frozen=True, slots=True)
class TextMark:
    """`text_chars` characters of the transcript are spoken by `audio_end_ms`."""

    text_chars: int
    audio_end_ms: int


@dataclass(frozen=True, slots=True)
class ItemView:
    """A conversation item as shown to clients."""

    item_id: ItemId
    role: str
    status: str
    """in_progress, completed or incomplete."""
    text: str
    is_audio: bool
    call_id: str | None = None
    call_name: str | None = None
    """Set for a function call, whose arguments are `text`."""
    is_speech: bool = True
    audio_ms: int = 0
    marks: tuple[TextMark, ...] = ()


@dataclass(frozen=True, slots=True)
class ItemAdded:
    """An item joined the conversation."""

    item: ItemView
    previous_item_id: ItemId | None


@dataclass(frozen=True, slots=True)
class ItemDone:
    """An item is final."""

    item: ItemView
    previous_item_id: ItemId | None


@dataclass(frozen=True, slots=True)
class InputTranscribed:
    """What the user said in an item."""

    item_id: ItemId
    transcript: str
    audio_ms: int


@dataclass(frozen=True, slots=True)
class ItemShown:
    """Answer to retrieve."""

    item: ItemView


@dataclass(frozen=True, slots=True)
class ItemRemoved:
    """Answer to delete."""

    item_id: ItemId


@dataclass(frozen=True, slots=True)
class ItemCut:
    """Answer to truncate: nothing after `audio_end_ms` was heard."""

    item_id: ItemId
    content_index: int
    audio_end_ms: int
