"""Messages that the model is told, and that are items of the conversation as if they were said."""

from session.context import ContextMessage
from session.effects import Effect, Emit
from session.ids import ItemId
from session.item_events import (
    ItemAdded,
    ItemDone,
    ItemView,
)
from session.ledger.history import Item
from session.ledger.spans import Turn
from session.state import SessionState


def tell(state: SessionState, message: ContextMessage) -> list[Effect]:
    """Make a message the newest item; the model hears of it with the next that it hears."""
    item_id = ItemId(state.ids.new("item"))
    previous = state.history.last_id
    state.history.add(Item(item_id, message.role, message.text))
    state.input.queue.add(Turn((), "", item_id, is_wanted=False, message=message))
    view = ItemView(item_id, message.role, "completed", message.text, is_audio=False)
    return [Emit(ItemAdded(view, previous)), Emit(ItemDone(view, previous))]
