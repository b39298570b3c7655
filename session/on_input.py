"""Handlers for user input on its way in: audio, text, clear and cancel.

seed: Realtime input ownership.
"""

from dataclasses import replace
from typing import assert_never

from session.answering import interrupt
from session.effects import Effect, Emit
from session.errors import DuplexError, IllegalNow, InputBackpressure, UnsupportedOption
from session.events import (
    ErrorRaised,
    InputBufferCleared,
    OverlapDecided,
)
from session.ids import ItemId
from session.ledger.input import Span
from session.on_commit import commit_by_detector
from session.overlap import OverlapAction, OverlapFacts, OverlapRuling, rule
from session.pump import pump
from session.speech_edges import close_open_speech, tell_edge
from session.state import SessionState
from session.stimuli import AudioAppended, InputCancelled, InputCleared, TextAppended
from session.unit import INPUT_RATE_HZ, SAMPLE_BYTES, samples_to_ms
from session.user_items import forget_words
from session.vad import Offset, Onset

InputStimulus = AudioAppended | TextAppended | InputCleared | InputCancelled


def handle(state: SessionState, stimulus: InputStimulus, now: float) -> list[Effect]:
    """Apply one input command."""
    match stimulus:
        case AudioAppended():
            return _append(state, stimulus, now)
        case TextAppended(text=text, event_id=event_id):
            return _append_text(state, text, event_id)
        case InputCleared():
            return _clear(state, now)
        case InputCancelled():
            state.input.discard_waiting("cancelled")
            return _clear(state, now)
        case _:
            assert_never(stimulus)


def _append(state: SessionState, append: AudioAppended, now: float) -> list[Effect]:
    if (
        state.input.waiting_bytes + len(append.pcm)
        > state.limits.max_pending_input_bytes_per_session
    ):
        limit = state.limits.max_pending_input_bytes_per_session
        error = InputBackpressure(f"{limit} bytes of input are already waiting; send slower")
        return [Emit(ErrorRaised(error, append.event_id))]
    edges = _edges(state, append)
    had_onset = any(isinstance(edge, Onset) for edge in edges)
    append = replace(append, is_speech=_is_speech(state, append, bool(edges)))
    state.append.last_input_at_s = now
    ended: ItemId | None = None
    effects: list[Effect] = []
    for edge in edges:
        ended = state.speech_item_id if isinstance(edge, Offset) else None
        effects += tell_edge(state, edge)
    effects += _rule_and_keep(state, append, had_onset, now)
    if ended is not None:
        effects += _utterance_ended(state, ended)
    return effects + pump(state, now)


def _rule_and_keep(
    state: SessionState, append: AudioAppended, had_onset: bool, now: float
) -> list[Effect]:
    ruling = _overlap(state, append, had_onset, now)
    if ruling is None:
        _keep(state, append)
        return []
    effects = [_overlap_event(state, append, ruling)]
    if ruling.action is OverlapAction.DROP:
        state.input.add(Span(append.pcm), discard=ruling.reason)
        return effects
    if ruling.action is OverlapAction.BARGE_IN:
        effects += interrupt(state, _interrupt_reason(ruling))
    _keep(state, append)
    return effects


def _edges(state: SessionState, append: AudioAppended) -> list[Onset | Offset]:
    if state.detector is None:
        return []
    found = (state.detector.feed(score) for score in append.scores)
    return [edge for edge in found if edge is not None]


def _is_speech(state: SessionState, append: AudioAppended, has_edge: bool) -> bool:
    if state.detector is not None:
        return state.detector.is_speaking or has_edge
    return bool(append.is_speech)


def _overlap(
    state: SessionState, append: AudioAppended, had_onset: bool, now: float
) -> OverlapRuling | None:
    if not state.answer_in_progress(now):
        state.overlap.speech_ms = 0
        return None
    if append.is_speech:
        state.overlap.speech_ms += _duration_ms(append)
    detection = state.config.turn_detection
    return rule(
        OverlapFacts(
            policy=state.config.overlap_policy,
            auto_response=state.config.auto_response,
            is_speech=bool(append.is_speech),
            had_onset=had_onset,
            has_detector=detection is not None,
            interrupts=detection is not None and detection.interrupt_response,
            duration_ms=_duration_ms(append),
            overlap_ms=state.overlap.speech_ms,
            short_ack_ms=state.config.overlap_short_ack_ms,
            barge_in_ms=state.config.overlap_barge_in_ms,
            client_action=append.overlap_action,
            force_barge_in=append.force_barge_in,
            force_listen=append.force_listen,
        )
    )


def _overlap_event(state: SessionState, append: AudioAppended, ruling: OverlapRuling) -> Effect:
    return Emit(
        OverlapDecided(
            fence=state.fence,
            policy=state.config.overlap_policy.value,
            action=ruling.action.value,
            reason=ruling.reason,
            duration_ms=_duration_ms(append),
            overlap_speech_ms=state.overlap.speech_ms,
        )
    )


def _interrupt_reason(ruling: OverlapRuling) -> str:
    return "turn_detected" if ruling.reason == "server_vad_speech_started" else "barge_in"


def _keep(state: SessionState, append: AudioAppended) -> None:
    state.input.add(Span(append.pcm, bool(append.is_speech), append.force_listen))
    detector = state.detector
    if state.config.auto_response or detector is None or detector.is_speaking or append.is_speech:
        return
    # Between utterances only the prefix padding is worth keeping: the next commit starts there.
    padding = detector.settings.prefix_padding_ms + detector.settings.min_speech_duration_ms
    keep = padding * INPUT_RATE_HZ // 1000 * SAMPLE_BYTES
    state.input.discard_open("silence", keep_bytes=keep)


def _duration_ms(append: AudioAppended) -> int:
    return samples_to_ms(len(append.pcm) // SAMPLE_BYTES, INPUT_RATE_HZ)


def _utterance_ended(state: SessionState, item_id: ItemId) -> list[Effect]:
    """Do what the session's mode does at the end of an utterance."""
    if state.config.auto_response:
        # The model hears the stream itself; it only shall not wait for the unit to fill up.
        state.flush_wanted = state.profile.accepts_short_units
        return []
    detection = state.config.turn_detection
    creates = detection is not None and detection.create_response
    return commit_by_detector(state, item_id, creates_response=creates)


def _append_text(state: SessionState, text: str, event_id: str | None) -> list[Effect]:
    error: DuplexError | None = None
    limit = state.limits.max_pending_input_bytes_per_session
    if not state.profile.text_input:
        error = UnsupportedOption(
            f"{state.config.model} takes no text input", code="native_text_append_unsupported"
        )
    elif state.input.waiting_bytes + len(text) > limit:
        error = InputBackpressure(f"{limit} bytes of input are already waiting; commit first")
    elif not text:
        error = IllegalNow("text is empty", code="bad_event", param="text")
    if error is not None:
        return [Emit(ErrorRaised(error, event_id))]
    state.input.add_text(text)
    return []


def _clear(state: SessionState, now: float) -> list[Effect]:
    effects = close_open_speech(state)
    forget_words(state, state.input.open_item.item_id)
    state.input.discard_open("cleared")
    state.flush_wanted = False
    return [*effects, Emit(InputBufferCleared()), *pump(state, now)]
