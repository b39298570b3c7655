"""What an answer apart from the conversation sees: `response.input`."""

from typing import Final

from session.config import ResponseOptions
from session.context import ContextMessage, ItemReference
from session.errors import DuplexError, IllegalNow, InputBackpressure, UnsupportedOption
from session.ledger.spans import Turn
from session.state import SessionState

Given = tuple[ContextMessage | ItemReference, ...]
_PARAM: Final = "response.input"


def refusal_of_input(state: SessionState, options: ResponseOptions) -> UnsupportedOption | None:
    """Say why this session takes no input with a response, if it takes none."""
    if "input" not in state.profile.response_options:
        why = f"{state.config.model} takes no response.input: create items in the conversation"
    elif not options.is_out_of_band:
        why = 'response.input needs response.conversation "none": items join a conversation with '
        why += "conversation.item.create"
    else:
        return None
    return UnsupportedOption(why, code="unsupported_response_input", param=_PARAM)


def messages_seen(state: SessionState, given: Given) -> tuple[ContextMessage, ...] | DuplexError:
    """Return the messages with each reference resolved, or what is wrong with one of them."""
    messages: list[ContextMessage] = []
    for place, each in enumerate(given):
        message = each if isinstance(each, ContextMessage) else _resolved(state, each, place)
        if isinstance(message, DuplexError):
            return message
        messages.append(message)
    size = sum(len(message.text) for message in messages)
    if state.input.waiting_bytes + size > state.limits.max_pending_input_bytes_per_session:
        return InputBackpressure("too much input waits; send it later")
    return tuple(messages)


def fresh_turn(messages: tuple[ContextMessage, ...]) -> Turn:
    """Return the turn that asks for an answer to these messages alone.

    The user's words are asked if nothing follows them.
    """
    asks = bool(messages) and messages[-1].role == "user"
    return Turn(
        (),
        messages[-1].text if asks else "",
        None,
        is_wanted=True,
        messages=messages[:-1] if asks else messages,
        is_bare=not asks,
        is_fresh=True,
    )


def _resolved(
    state: SessionState, reference: ItemReference, place: int
) -> ContextMessage | DuplexError:
    param = f"{_PARAM}.{place}.id"
    item = state.history.get(reference.item_id)
    if item is None:
        return IllegalNow(f"no item {reference.item_id}", code="item_not_found", param=param)
    if item.call_id is not None:
        why = f"item {reference.item_id} is no message"
    elif not item.text:
        why = f"no words of item {reference.item_id} are known"
    else:
        return ContextMessage(item.role, item.text)
    return UnsupportedOption(why, code="unsupported_response_input", param=param)
