"""Handlers for what the client wants of answers: create, cancel, clear, interrupt."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, assert_never

from session.answering import interrupt, reserve_answer, show_answer
from session.config import ANSWER_SETTINGS, NO_TOKEN_LIMIT, AnswerSettings
from session.effects import Effect, Emit
from session.errors import ClientError, DuplexError, IllegalNow, UnsupportedOption
from session.events import ErrorRaised, OutputBufferCleared
from session.fitting import fitted_answer
from session.ids import ResponseId
from session.ledger.spans import Turn
from session.on_commit import show_requested
from session.pump import pump
from session.response_input import Given, fresh_turn, messages_seen, refusal_of_input
from session.state import SessionState
from session.stimuli import (
    BargedIn,
    OutputClearRequested,
    ResponseCancelRequested,
    ResponseRequested,
)
from session.tools import FREE_CHOICE, ToolChoice, ToolUse

_WHAT_EVERY_MODEL_DOES: Final[Mapping[str, tuple[object, ...]]] = {
    "max_output_tokens": (NO_TOKEN_LIMIT,),
    "tools": ((),),
    "tool_choice": (FREE_CHOICE, ToolChoice(ToolUse.NONE)),
}
"""Values of options that a model without them honours all the same."""

ResponseCommand = ResponseRequested | ResponseCancelRequested | OutputClearRequested | BargedIn


def handle(state: SessionState, stimulus: ResponseCommand, now: float) -> list[Effect]:
    """Apply one command about answers."""
    match stimulus:
        case ResponseRequested():
            return _create(state, _fitted(state, stimulus), now)
        case ResponseCancelRequested(response_id=response_id, event_id=event_id):
            return _cancel(state, response_id, event_id, now)
        case OutputClearRequested(response_id=response_id, event_id=event_id):
            return _clear_output(state, response_id, event_id, now)
        case BargedIn(event_id=event_id):
            if not state.answer_in_progress(now):
                return [_not_active(None, event_id)]
            return interrupt(state, "barge_in") + pump(state, now)
        case _:
            assert_never(stimulus)


def _fitted(state: SessionState, request: ResponseRequested) -> ResponseRequested:
    if not request.is_lenient:
        return request
    settings = fitted_answer(request.options.settings, state.profile)
    return replace(request, options=replace(request.options, settings=settings))


def _create(state: SessionState, request: ResponseRequested, now: float) -> list[Effect]:
    error = _refusal(state, request)
    if error is not None:
        return [Emit(ErrorRaised(error, request.event_id))]
    if request.options.input is not None:
        return _create_apart(state, request, request.options.input, now)
    if state.input.turns == 0:
        state.input.queue.ask(Turn((), "", None, is_wanted=True, is_bare=True))
    return show_requested(state, request.options) + pump(state, now)


def _create_apart(
    state: SessionState, request: ResponseRequested, given: Given, now: float
) -> list[Effect]:
    """Ask for an answer to its own input. What was committed goes on waiting."""
    seen = messages_seen(state, given)
    if isinstance(seen, DuplexError):
        return [Emit(ErrorRaised(seen, request.event_id))]
    reserve_answer(state, request.options)
    state.input.queue.ask(fresh_turn(seen))
    return show_answer(state) + pump(state, now)


def _refusal(state: SessionState, request: ResponseRequested) -> ClientError | None:
    if state.response.active is not None:
        return IllegalNow("an answer is already being made", code="response_already_active")
    if request.options.input is not None:
        refused = refusal_of_input(state, request.options)
        if refused is not None:
            return refused
    lacking = _lacking(state, request.options.settings)
    if lacking is not None:
        return UnsupportedOption(
            f"{state.config.model} does not take {lacking} for a single response",
            code="unsupported_native_response_options",
            param=f"response.{lacking}",
        )
    is_bare = request.is_bare or request.options.input is not None
    if state.input.turns == 0 and not is_bare:
        return IllegalNow(
            "nothing to answer: commit audio or create a text item first",
            code="response_create_without_input",
        )
    return None


def _lacking(state: SessionState, settings: AnswerSettings) -> str | None:
    """Name an option that was set and that the model does not have."""
    for name in ANSWER_SETTINGS:
        value = getattr(settings, name)
        if value is None or name in state.profile.response_options:
            continue
        if value not in _WHAT_EVERY_MODEL_DOES.get(name, ()):
            return name
    return None


def _cancel(
    state: SessionState, response_id: ResponseId | None, event_id: str | None, now: float
) -> list[Effect]:
    active = state.response.active
    if active is None or (response_id is not None and response_id != active.response_id):
        return [_not_active(response_id, event_id)]
    return interrupt(state, "client_cancelled") + pump(state, now)


def _clear_output(
    state: SessionState, response_id: ResponseId | None, event_id: str | None, now: float
) -> list[Effect]:
    active = state.response.active
    if active is not None and response_id in (None, active.response_id):
        cleared = [Emit(OutputBufferCleared(active.response_id))] if active.is_visible else []
        effects = interrupt(state, "output_audio_buffer_clear")
        return [*cleared, *effects, *pump(state, now)]
    target = response_id or state.response.last_id
    if target is None or not state.playback.knows(target):
        return [_not_active(response_id, event_id)]
    # seed: an idle playback clear makes no stage call; there is nothing to cancel there.
    state.playback.flush(target)
    return [Emit(OutputBufferCleared(target))]


def _not_active(response_id: ResponseId | None, event_id: str | None) -> Emit:
    what = f"response {response_id} is" if response_id else "no response is"
    error = IllegalNow(
        f"{what} not active" if response_id else f"{what} active", code="response_not_active"
    )
    return Emit(ErrorRaised(error, event_id))
