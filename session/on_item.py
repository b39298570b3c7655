"""Handlers for conversation items and for what the client has played."""

from dataclasses import replace
from typing import assert_never

from session.context import ContextMessage
from session.effects import Effect, Emit
from session.errors import (
    ClientError,
    DuplexError,
    IllegalNow,
    InputBackpressure,
    ItemMissing,
    UnsupportedOption,
)
from session.events import (
    ErrorRaised,
    PlaybackAdvanced,
)
from session.ids import ItemId, ResponseId
from session.item_events import (
    ItemAdded,
    ItemCut,
    ItemDone,
    ItemRemoved,
    ItemShown,
    ItemView,
    TextMark,
)
from session.ledger.history import FRONT, KEPT_ITEMS, Item, message_id
from session.ledger.spans import Span, Turn
from session.lifecycle import TurnTrigger, move_turn
from session.state import SessionState, Utterance
from session.stimuli import (
    ItemCreated,
    ItemDeleted,
    ItemRetrieved,
    ItemTruncated,
    PlaybackAcked,
)
from session.tools import ToolOutput
from session.unit import INPUT_RATE_HZ, SAMPLE_BYTES, samples_to_ms
from session.user_items import disown_words, is_promised

ItemCommand = ItemCreated | ItemRetrieved | ItemDeleted | ItemTruncated | PlaybackAcked


def handle(state: SessionState, stimulus: ItemCommand) -> list[Effect]:
    """Apply one command about items."""
    match stimulus:
        case ItemCreated():
            return _create(state, stimulus)
        case PlaybackAcked():
            return _acknowledge(state, stimulus)
        case ItemRetrieved(item_id=item_id, event_id=event_id):
            item = state.history.get(item_id)
            if item is None:
                return [_not_found(item_id, event_id, "retrieve")]
            return [Emit(ItemShown(view_of(state, item)))]
        case ItemDeleted(item_id=item_id, event_id=event_id):
            return _delete(state, item_id, event_id)
        case ItemTruncated():
            return _truncate(state, stimulus)
        case _:
            assert_never(stimulus)


def view_of(state: SessionState, item: Item) -> ItemView:
    """Return an item as the history holds it: an answer is what was heard of it."""
    status = "in_progress" if not item.is_done else "completed"
    if item.is_done and (item.is_truncated or item.is_cut):
        status = "incomplete"
    marks: tuple[TextMark, ...] = ()
    if item.response_id is not None and state.playback.knows(item.response_id):
        marks = state.playback.marks(item.response_id)
    return ItemView(
        item_id=item.item_id,
        role=item.role,
        status=status,
        text=item.text,
        is_audio=item.is_audio,
        call_id=item.call_id,
        call_name=item.call_name,
        audio_ms=item.audio_ms,
        marks=marks,
    )


def _create(state: SessionState, created: ItemCreated) -> list[Effect]:
    error = _create_refusal(state, created)
    if error is not None:
        return [Emit(ErrorRaised(error, created.event_id))]
    item_id = created.item_id or ItemId(state.ids.new("item"))
    previous = created.previous_item_id or state.history.last_id
    if previous == FRONT:
        previous = None
    audio_ms = samples_to_ms(len(created.pcm) // SAMPLE_BYTES, INPUT_RATE_HZ)
    item = Item(
        item_id,
        created.role,
        created.text,
        is_audio=bool(created.pcm),
        call_id=created.call_id,
        audio_ms=audio_ms,
    )
    state.history.add(item, after=created.previous_item_id)
    before = next(filter(state.input.queue.holds, state.history.after(item_id)), None)
    state.input.add_item(_turn_of(created, item_id), before=before)
    if created.call_id is not None:
        state.calls.answer(created.call_id)
    if created.pcm:
        state.utterances.append(
            Utterance(item_id, 0, audio_ms, state.input.total_bytes, is_whole=True)
        )
    view = view_of(state, item)
    return [Emit(ItemAdded(view, previous)), Emit(ItemDone(view, previous))]


def _turn_of(created: ItemCreated, item_id: ItemId) -> Turn:
    """Return what the model is to be given of an item, at its place among others."""
    waits = Turn((), "", item_id, is_wanted=False)
    if created.call_id is not None:
        return replace(waits, tool_outputs=(ToolOutput(created.call_id, created.text),))
    if created.role != "user":
        return replace(waits, message=ContextMessage(created.role, created.text))
    spans = (Span(created.pcm, is_speech=True),) if created.pcm else ()
    return replace(waits, spans=spans, text=created.text, is_whole=True)


def _create_refusal(state: SessionState, created: ItemCreated) -> DuplexError | None:
    error = _output_refusal(state, created.call_id) if created.call_id is not None else None
    if error is not None:
        return error
    has_text = bool(created.text) or not created.pcm
    if created.role == "user" and has_text and not state.profile.text_input:
        return UnsupportedOption(
            f"{state.config.model} takes no text input", code="text_only_turn_unsupported"
        )
    if created.role != "user" and created.call_id is None and not state.profile.messages:
        return UnsupportedOption(
            f"{state.config.model} takes no {created.role} items; use session.instructions",
            code="unsupported_item_role",
            param="item.role",
        )
    if created.item_id == FRONT:
        return UnsupportedOption(
            f"{FRONT} names the place before the first item, not an item", param="item.id"
        )
    if created.item_id is not None and _is_taken(state, created.item_id):
        return IllegalNow(
            f"item {created.item_id} exists", code="item_create_duplicate_item_id", param="item.id"
        )
    after = created.previous_item_id
    if after not in (None, FRONT) and state.history.get(after) is None:
        return IllegalNow(f"no item {after}", code="item_not_found", param="previous_item_id")
    return _no_room(state, created)


def _no_room(state: SessionState, created: ItemCreated) -> InputBackpressure | None:
    limits, size = state.limits, len(created.text) + len(created.pcm)
    is_full = state.input.waiting_bytes + size > limits.max_pending_input_bytes_per_session
    # A conversation that is brought along is longer than the turns that may wait for the model.
    if is_full or state.input.waiting_items >= KEPT_ITEMS:
        return InputBackpressure("too much input waits for response.create; send it later")
    most = limits.max_pending_turns_per_session
    if created.pcm and state.input.pending_turns >= most:
        return InputBackpressure(f"{most} spoken items are already waiting for response.create")
    return None


def _is_taken(state: SessionState, item_id: ItemId) -> bool:
    return state.history.get(item_id) is not None or is_promised(state, item_id)


def _output_refusal(state: SessionState, call_id: str) -> ClientError | None:
    """Say why a function call's output is not taken: nobody called, or it has one."""
    if not state.profile.tools:
        why = f"{state.config.model} calls no tools"
    elif not state.calls.awaits(call_id):
        why = f"no call {call_id!r} waits for an output"
    else:
        return None
    return IllegalNow(why, code="invalid_function_call_output", param="item.call_id")


def _delete(state: SessionState, item_id: ItemId, event_id: str | None) -> list[Effect]:
    active = state.response.active
    if active is not None and active.item_id == item_id:
        error = IllegalNow("that item is still being spoken; cancel first", code="item_in_progress")
        return [Emit(ErrorRaised(error, event_id))]
    item = state.history.get(item_id)
    if item is None:
        return [_not_found(item_id, event_id, "delete")]
    state.history.remove(item_id)
    disown_words(state, item_id)
    had_waited = state.input.drop_turn(item_id)
    if item.call_name is not None and item.call_id is not None:
        state.calls.forget(item.call_id)
    elif item.call_id is not None and had_waited:
        state.calls.withdraw(item.call_id)
    return [Emit(ItemRemoved(item_id))]


def _truncate(state: SessionState, cut: ItemTruncated) -> list[Effect]:
    item = state.history.get(cut.item_id)
    if item is None:
        return [_not_found(cut.item_id, cut.event_id, "truncate")]
    response_id = item.response_id
    if response_id is None or not item.is_audio or not state.playback.knows(response_id):
        error: ClientError = UnsupportedOption(
            "only spoken answers of the assistant can be truncated",
            code="unsupported_content_type",
            param="item_id",
        )
        return [Emit(ErrorRaised(error, cut.event_id))]
    if cut.content_index != 0:
        error = IllegalNow(
            f"item {cut.item_id} has one part, with index 0",
            code="invalid_value",
            param="content_index",
        )
        return [Emit(ErrorRaised(error, cut.event_id))]
    cursor = state.playback.cursor(response_id)
    if cut.audio_end_ms > cursor.longest_cut_ms:
        error = IllegalNow(
            f"audio content of {cursor.end_ms}ms is already shorter than {cut.audio_end_ms}ms",
            code="invalid_value",
            param="audio_end_ms",
        )
        return [Emit(ErrorRaised(error, cut.event_id))]
    end_ms = min(cut.audio_end_ms, cursor.end_ms)
    state.playback.cap(response_id, end_ms)
    state.playback.acknowledge(response_id, played_ms=end_ms, committed_ms=end_ms)
    _store_heard(state, item, response_id)
    state.history.change(item.item_id, is_truncated=True)
    return [Emit(ItemCut(cut.item_id, cut.content_index, cut.audio_end_ms))]


def _acknowledge(state: SessionState, ack: PlaybackAcked) -> list[Effect]:
    target = _ack_target(state, ack)
    if isinstance(target, ClientError):
        return [Emit(ErrorRaised(target, ack.event_id))]
    item_id = message_id(target)
    cursor = state.playback.cursor(target)
    if ack.truncates:
        limit_ms = ack.played_ms if ack.committed_ms is None else ack.committed_ms
        state.playback.cap(target, min(limit_ms, cursor.end_ms))
    view = state.playback.acknowledge(
        target, played_ms=ack.played_ms, committed_ms=ack.committed_ms
    )
    item = state.history.of_response(target)
    if item is not None:
        _store_heard(state, item, target)
        if ack.truncates:
            state.history.change(item.item_id, is_truncated=True)
    is_last = target == state.response.last_id and state.response.active is None
    if is_last and view.committed_ms >= view.sent_ms:
        state.turn = move_turn(state.turn, TurnTrigger.ANSWER_HEARD)
    stored = state.history.of_response(target)
    return [
        Emit(
            PlaybackAdvanced(
                fence=state.fence,
                response_id=target,
                item_id=item_id,
                playback=view,
                is_history_committed=stored is not None and bool(stored.text),
                is_truncated=cursor.cap_ms is not None
                or (stored is not None and stored.is_truncated),
            )
        )
    ]


def _ack_target(state: SessionState, ack: PlaybackAcked) -> ResponseId | ClientError:
    response_id = ack.response_id
    if ack.item_id is not None:
        named = ResponseId(ack.item_id.removeprefix("item_"))
        if response_id is not None and response_id != named:
            return IllegalNow(
                f"item {ack.item_id} does not belong to response {response_id}",
                code="playback_item_mismatch",
                param="item_id",
            )
        response_id = named
    if response_id is None:
        response_id = _meant(state)
    if response_id is None or not (
        state.playback.knows(response_id) or state.playback.is_past(response_id)
    ):
        return IllegalNow("no such answer to acknowledge", code="playback_item_not_found")
    if not _may_still_count(state, response_id):
        return IllegalNow(
            f"response {response_id} is no longer in the conversation",
            code="playback_ack_too_late",
        )
    return response_id


def _meant(state: SessionState) -> ResponseId | None:
    """Return the answer that an acknowledgement without an id is about."""
    active = state.response.active
    shown = active.response_id if active is not None and active.is_visible else None
    return state.playback.sole_pending or shown or state.response.last_id


def _may_still_count(state: SessionState, response_id: ResponseId) -> bool:
    """Whether the answer's cursors are kept and it still has its place, if it ever had one."""
    if not state.playback.knows(response_id):
        return False
    has_place = state.playback.cursor(response_id).has_place
    return not has_place or state.history.of_response(response_id) is not None


def _store_heard(state: SessionState, item: Item, response_id: ResponseId) -> None:
    active = state.response.active
    is_active = active is not None and active.response_id == response_id
    full_text = active.transcript if active is not None and is_active else item.full_text
    heard = state.playback.cursor(response_id).heard_of(full_text)
    state.history.change(item.item_id, text=heard)


def _not_found(item_id: ItemId, event_id: str | None, asked: str) -> Emit:
    error = ItemMissing(f"no item {item_id}", param="item_id", asked=asked)
    return Emit(ErrorRaised(error, event_id))
