"""A committed turn becomes an item of the conversation."""

from collections import deque

from session.effects import Effect, Emit
from session.events import ItemAdded, ItemDone, ItemView
from session.ids import ItemId
from session.ledger.history import Item
from session.state import SessionState, Utterance


def add_user_item(
    state: SessionState, item_id: ItemId, text: str, *, audio_ms: int
) -> tuple[Effect, Effect]:
    """Put an item of the user into the history; return what tells of its coming and of its end."""
    previous = state.history.last_id
    is_audio = audio_ms > 0
    state.history.add(Item(item_id, "user", text, is_audio=is_audio, audio_ms=audio_ms))
    forget_words(state, item_id)
    if is_audio:
        state.utterances.append(Utterance(item_id, 0, audio_ms))
    view = ItemView(item_id, "user", "completed", text, is_audio, audio_ms=audio_ms)
    return Emit(ItemAdded(view, previous)), Emit(ItemDone(view, previous))


def forget_words(state: SessionState, item_id: ItemId | None) -> None:
    """Do not wait for the words of an item: its audio does not go to the model."""
    state.utterances = deque(u for u in state.utterances if u.item_id != item_id)
