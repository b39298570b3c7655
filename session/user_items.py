"""What the user said becomes an item of the conversation, and belongs to a turn of the model."""

from collections import deque
from dataclasses import replace

from session.effects import Effect, Emit
from session.ids import ItemId
from session.item_events import (
    ItemAdded,
    ItemDone,
    ItemView,
)
from session.ledger.history import Item
from session.state import SessionState, Utterance


def add_user_item(
    state: SessionState, item_id: ItemId, text: str, *, audio_ms: int
) -> tuple[Effect, Effect]:
    """Put an item of the user into the history; return what tells of its coming and of its end."""
    previous = state.history.last_id
    is_audio = audio_ms > 0 or not text
    state.history.add(Item(item_id, "user", text, is_audio=is_audio, audio_ms=audio_ms))
    forget_words(state, item_id)
    if is_audio:
        state.utterances.append(Utterance(item_id, 0, audio_ms, state.input.total_bytes))
    view = ItemView(item_id, "user", "completed", text, is_audio, audio_ms=audio_ms)
    return Emit(ItemAdded(view, previous)), Emit(ItemDone(view, previous))


def item_to_make(state: SessionState) -> ItemId:
    """Return the id of the item that the open input becomes."""
    return state.input.open_item.item_id or ItemId(state.ids.new("item"))


def is_promised(state: SessionState, item_id: ItemId) -> bool:
    """Whether the client was told this id of an item that is still to come."""
    active = state.response.active
    promised = [
        state.input.open_item.item_id,
        state.input.deferred_id,
        None if active is None else active.item_id,
        *(utterance.item_id for utterance in state.utterances),
    ]
    return item_id in promised


def forget_words(state: SessionState, item_id: ItemId | None) -> None:
    """Do not wait for the words of an item: its audio does not go to the model."""
    state.utterances = deque(u for u in state.utterances if u.item_id != item_id)


def disown_words(state: SessionState, item_id: ItemId) -> None:
    """The item is deleted: the model may still tell its words, but they make no item any more."""
    state.utterances = deque(
        replace(u, is_deleted=True) if u.item_id == item_id else u for u in state.utterances
    )


def reserve_target(state: SessionState) -> None:
    """The input item begins: over an answer, it reserves the model turn that comes after that.

    Whoever commits it later is told this turn, wherever the session's own turn has got to.
    """
    active = state.response.active
    target = None
    if active is not None:
        # The turn rises when the model ends its own, which may be before the answer is spoken.
        ahead = 0 if active.is_turn_ended else 1
        target = replace(state.fence, turn=state.fence.turn + ahead)
    state.input.open_item.target = target


def target_turn(state: SessionState) -> int:
    """Return the model turn that the open item belongs to."""
    target = state.input.open_item.target
    if target is None or target.epoch != state.fence.epoch:
        return state.fence.turn  # an interruption has made the reservation void
    return target.turn
