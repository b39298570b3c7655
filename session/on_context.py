"""Handlers for what the model is told during a session without anybody saying it there.

Rule 1: a comment waits until nobody speaks and the last answer has been heard; comments that came
        meanwhile are one answer.
"""

from session.config import ConfigPatch, ResponseOptions, TextAppendix
from session.context import ContextMessage
from session.effects import Effect, Emit
from session.errors import DuplexError, InputBackpressure, UnsupportedOption
from session.events import ErrorRaised
from session.ledger.history import KEPT_ITEMS
from session.lifecycle import Life
from session.messages import tell
from session.on_lifecycle import handle_settings
from session.on_response import handle as handle_response
from session.state import SessionState
from session.stimuli import ResponseRequested, SessionConfigured
from session.stream_events import ContextAccepted
from session.stream_stimuli import ContextAppended, ContextUse


def handle(state: SessionState, told: ContextAppended, now: float) -> list[Effect]:
    """Tell the model, in the way that the text's use asks for."""
    if told.use is ContextUse.INSTRUCTIONS:
        patch = ConfigPatch((("instructions", TextAppendix(told.text)),))
        return handle_settings(state, SessionConfigured(patch, told.event_id), now)
    error = _refusal(state, told)
    if error is not None:
        return [Emit(ErrorRaised(error, told.event_id))]
    effects = tell(state, ContextMessage("system", told.text))
    effects.append(Emit(ContextAccepted(told.use, told.event_id)))
    if told.use is ContextUse.COMMENTARY:
        state.wants_comment = True
    return effects + comment(state, now)


def comment_deadline(state: SessionState) -> float | None:
    """When the model can tell the user what it was told; None when it has to wait, or need not."""
    if not state.wants_comment or state.life is not Life.OPEN or state.drain is not None:
        return None
    if state.response.active is not None or state.turns_expected or state.append.is_busy:
        return None  # what the user has said may be answered yet
    if state.speech_item_id is not None:
        return None
    return state.playback.heard_at(state.response.last_id)


def comment(state: SessionState, now: float) -> list[Effect]:
    """Let the model tell the user what it was told, if it is time."""
    due = comment_deadline(state)
    if due is None or now < due:
        return []
    state.wants_comment = False
    request = ResponseRequested(ResponseOptions(), is_bare=True)
    return handle_response(state, request, now)


def _refusal(state: SessionState, told: ContextAppended) -> DuplexError | None:
    if not state.profile.messages:
        return UnsupportedOption(
            f"{state.config.model} can not be told anything but instructions during a session",
            code="context_append_unsupported",
            param="type",
        )
    limit = state.limits.max_pending_input_bytes_per_session
    has_room = state.input.waiting_bytes + len(told.text) <= limit
    if has_room and state.input.waiting_items < KEPT_ITEMS:
        return None
    return InputBackpressure("too much waits for the model; send it later")
