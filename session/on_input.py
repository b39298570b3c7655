"""Handlers for user input on its way in: audio, text, clear and cancel.

Rule 1: without auto-response, an append in which an utterance ends is taken in parts: each
        utterance is committed before anything after it comes in.
Rule 2: what is refused changes nothing but the place of what follows.

seed: Realtime input ownership.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, assert_never

from session.answering import interrupt, leave_epoch
from session.effects import Effect, Emit
from session.errors import DuplexError, IllegalNow, InputBackpressure, UnsupportedOption
from session.events import (
    ErrorRaised,
    InputBufferCleared,
    OverlapDecided,
)
from session.idle_user import begin_wait, note_place
from session.ids import ItemId
from session.ledger.input import InputLedger
from session.ledger.spans import Span, frame_bytes
from session.on_commit import commit_by_detector
from session.overlap import OverlapAction, OverlapFacts, OverlapRuling, rule
from session.pump import pump
from session.speech_edges import close_open_speech, tell_edge
from session.state import SessionState
from session.stimuli import AudioAppended, InputCancelled, InputCleared, TextAppended
from session.stream_events import FRAME_MS, InputCounted
from session.unit import INPUT_RATE_HZ, SAMPLE_BYTES, samples_to_ms
from session.user_items import forget_words, reserve_target
from session.vad import Offset, Onset

MAX_PIECES: Final = 65_536
"""Appends that may wait, however small: each takes more memory than its bytes say."""

InputStimulus = AudioAppended | TextAppended | InputCleared | InputCancelled


@dataclass(frozen=True, slots=True)
class _Part:
    """Audio that is taken at once, and the edges of speech in it."""

    append: AudioAppended
    edges: tuple[Onset | Offset, ...]
    is_rest: bool = False
    """What came after the last utterance of the append."""

    @property
    def onset(self) -> Onset | None:
        """The last onset."""
        return next((edge for edge in reversed(self.edges) if isinstance(edge, Onset)), None)

    @property
    def offset(self) -> Offset | None:
        """The end of an utterance, if the part ends with one."""
        last = self.edges[-1] if self.edges else None
        return last if isinstance(last, Offset) else None


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
            return _cancel(state, now)
        case _:
            assert_never(stimulus)


def has_room(ledger: InputLedger, n_bytes: int, *, limit_bytes: int) -> bool:
    """Whether one more append of this size may wait."""
    return ledger.pieces < MAX_PIECES and ledger.waiting_bytes + n_bytes <= limit_bytes


def _append(state: SessionState, append: AudioAppended, now: float) -> list[Effect]:
    span = _span(append)
    size = len(span.pcm) + frame_bytes((span,))
    limit = state.limits.max_pending_input_bytes_per_session
    if not has_room(state.input, size, limit_bytes=limit):
        state.input.add(span, discard="refused")
        counted = _count_frames(state, state.input.total_bytes)
        if state.detector is not None and append.scores:
            state.detector.skip(append.scores[-1].end_sample)
        error = InputBackpressure(_too_much(limit))
        return [*counted, Emit(ErrorRaised(error, append.event_id))]
    state.append.last_input_at_s = now
    before = state.input.total_bytes
    effects = _count_frames(state, before + len(append.pcm))
    for part in _parts(state, append, _edges(state, append, now)):
        effects += _take(state, part, now)
    note_place(state, now, began_byte=before)
    return effects + pump(state, now)


def _count_frames(state: SessionState, total_bytes: int) -> list[Effect]:
    """Tell how much input there is with this append, if it fills another frame."""
    counted_ms = samples_to_ms(total_bytes // SAMPLE_BYTES, INPUT_RATE_HZ) // FRAME_MS * FRAME_MS
    if not state.config.counts_input or counted_ms == state.input_told_ms:
        return []
    state.input_told_ms = counted_ms
    return [Emit(InputCounted(counted_ms))]


def _too_much(limit_bytes: int) -> str:
    return (
        f"{limit_bytes} bytes or {MAX_PIECES} appends of input are already waiting: send slower, "
        "in larger pieces, or commit first"
    )


def _span(append: AudioAppended) -> Span:
    groups = (append.video_frames,) if append.video_frames else ()
    return Span(append.pcm, bool(append.is_speech), append.force_listen, groups)


def _edges(state: SessionState, append: AudioAppended, now: float) -> tuple[Onset | Offset, ...]:
    if state.detector is None:
        return ()
    is_over = state.answer_in_progress(now)
    found = [state.detector.feed(score, over_answer=is_over) for score in append.scores]
    return tuple(edge for edge in found if edge is not None)


def _parts(
    state: SessionState, append: AudioAppended, edges: tuple[Onset | Offset, ...]
) -> Iterator[_Part]:
    """Cut an append behind each utterance that ends in it, where that makes a turn of its own."""
    if state.config.auto_response or not any(isinstance(edge, Offset) for edge in edges):
        yield _Part(_with_opinion(state, append, bool(edges)), edges)
        return
    begin, taken = state.input.total_bytes, 0
    waiting: list[Onset | Offset] = []
    for edge in edges:
        waiting.append(edge)
        if isinstance(edge, Offset):
            end = min(max(taken, edge.found_at_sample * SAMPLE_BYTES - begin), len(append.pcm))
            yield _Part(_slice(append, taken, end, is_speech=True), tuple(waiting))
            append = replace(append, video_frames=())  # they were at its first byte
            taken, waiting = end, []
    if taken < len(append.pcm) or waiting:
        rest = _slice(append, taken, len(append.pcm), is_speech=append.is_speech)
        rest = _with_opinion(state, rest, bool(waiting))
        yield _Part(rest, tuple(waiting), is_rest=True)


def _slice(append: AudioAppended, begin: int, end: int, *, is_speech: bool | None) -> AudioAppended:
    return replace(append, pcm=append.pcm[begin:end], is_speech=is_speech)


def _with_opinion(state: SessionState, append: AudioAppended, has_edge: bool) -> AudioAppended:
    """Say whether it is speech: as voice detection heard it, or as the client insists."""
    if state.detector is None:
        return append
    heard = state.detector.is_speaking or has_edge
    return replace(append, is_speech=heard or append.is_speech is True)


def _take(state: SessionState, part: _Part, now: float) -> list[Effect]:
    effects: list[Effect] = []
    ended: ItemId | None = None
    if part.append.is_speech:
        begin_wait(state, now)
    for edge in part.edges:
        ended = state.speech_item_id if isinstance(edge, Offset) else None
        effects += tell_edge(state, edge)
    effects += _rule_and_keep(state, part, now)
    if ended is not None and part.offset is not None:
        effects += _utterance_ended(state, ended, part.offset)
    return effects


def _rule_and_keep(state: SessionState, part: _Part, now: float) -> list[Effect]:
    append = part.append
    ruling = _overlap(state, part, now)
    if ruling is None:
        _keep(state, part)
        return []
    is_told = not (part.is_rest and ruling.action is OverlapAction.DROP)
    effects = _told(state, append, ruling) if is_told else []
    if not ruling.keeps_audio:
        state.input.add(_span(append), discard=ruling.reason)
        return effects
    if ruling.action is OverlapAction.BARGE_IN:
        effects += interrupt(state, _interrupt_reason(ruling))
    _keep(state, part)
    return effects


def _overlap(state: SessionState, part: _Part, now: float) -> OverlapRuling | None:
    if not state.answer_in_progress(now):
        state.overlap.begin("")
        return None
    active, append = state.response.active, part.append
    owner = (state.response.last_id or "") if active is None else active.response_id
    if state.overlap.begin(owner) and state.config.auto_response:
        # The model has heard, and is answering, what came before.
        state.input.open_item.speech_bytes = 0
    if append.is_speech:
        state.overlap.speech_ms += _duration_ms(append)
    detection = state.config.turn_detection
    return rule(
        OverlapFacts(
            policy=state.config.overlap_policy,
            auto_response=state.config.auto_response,
            is_speech=bool(append.is_speech),
            had_onset=part.onset is not None,
            has_detector=detection is not None,
            interrupts=detection is not None and detection.interrupt_response,
            duration_ms=_duration_ms(append),
            overlap_ms=state.overlap.speech_ms,
            short_ack_ms=state.config.overlap_short_ack_ms,
            barge_in_ms=state.config.overlap_barge_in_ms,
            client_action=append.overlap_action,
            force_barge_in=append.force_barge_in,
            force_listen=append.force_listen,
            text_hint=append.text_hint,
            has_frames=bool(append.video_frames),
        )
    )


def _told(state: SessionState, append: AudioAppended, ruling: OverlapRuling) -> list[Effect]:
    """Tell what was decided. Where the stream goes on in any case, only a change is news."""
    is_news = ruling.reason != state.overlap.told
    state.overlap.told = ruling.reason
    if ruling.reason == "auto_response_continuous":
        return []
    is_same = ruling.reason == "server_vad_utterance_active" and not is_news
    if is_same and state.config.auto_response:
        return []
    return [
        Emit(
            OverlapDecided(
                fence=state.fence,
                policy=state.config.overlap_policy.value,
                action=ruling.action.value,
                reason=ruling.reason,
                duration_ms=_duration_ms(append),
                overlap_speech_ms=state.overlap.speech_ms,
            )
        )
    ]


def _interrupt_reason(ruling: OverlapRuling) -> str:
    return "turn_detected" if ruling.reason == "server_vad_speech_started" else "barge_in"


def _keep(state: SessionState, part: _Part) -> None:
    """Take audio into the open item, which begins a little before its speech."""
    ledger, append, detector = state.input, part.append, state.detector
    if ledger.open_item.is_empty:
        reserve_target(state)
    had_speech = ledger.open_item.speech_bytes > 0
    ledger.add(_span(append))
    if append.is_speech or (append.is_speech is None and detector is None):
        ledger.open_item.speech_bytes += len(append.pcm)
    if state.config.auto_response or detector is None or had_speech:
        return
    if part.onset is not None:
        ledger.discard_open("silence", keep_from=part.onset.start_sample * SAMPLE_BYTES)
    elif not append.is_speech:
        # Between utterances only the prefix padding is worth keeping: the next item starts there.
        ledger.discard_open("silence", keep_from=detector.needed_from_sample * SAMPLE_BYTES)


def _duration_ms(append: AudioAppended) -> int:
    return samples_to_ms(len(append.pcm) // SAMPLE_BYTES, INPUT_RATE_HZ)


def _utterance_ended(state: SessionState, item_id: ItemId, offset: Offset) -> list[Effect]:
    """Do what the session's mode does at the end of an utterance."""
    if state.config.auto_response:
        # The model hears the stream itself; it only shall not wait for the unit to fill up.
        state.flush_wanted = state.profile.accepts_short_units
        return []
    detection = state.config.turn_detection
    creates = detection is not None and detection.create_response
    spoken_ms = samples_to_ms(offset.speech_samples, INPUT_RATE_HZ)
    return commit_by_detector(state, item_id, creates_response=creates, spoken_ms=spoken_ms)


def _append_text(state: SessionState, text: str, event_id: str | None) -> list[Effect]:
    error: DuplexError | None = None
    limit = state.limits.max_pending_input_bytes_per_session
    if not state.profile.text_input:
        error = UnsupportedOption(
            f"{state.config.model} takes no text input", code="native_text_append_unsupported"
        )
    elif not has_room(state.input, len(text), limit_bytes=limit):
        error = InputBackpressure(_too_much(limit))
    elif not text:
        error = IllegalNow("text is empty", code="bad_event", param="text")
    if error is not None:
        return [Emit(ErrorRaised(error, event_id))]
    if state.input.open_item.is_empty:
        reserve_target(state)
    state.input.add_text(text)
    return []


def _clear(state: SessionState, now: float) -> list[Effect]:
    """Drop the open item. What was committed or is at the model stays."""
    effects = close_open_speech(state)
    forget_words(state, state.input.open_item.item_id)
    state.input.discard_open("cleared")
    state.flush_wanted = False
    return [*effects, Emit(InputBufferCleared()), *pump(state, now)]


def _cancel(state: SessionState, now: float) -> list[Effect]:
    """Drop all input that waits, and what is being made of it as long as none of that was heard."""
    effects = close_open_speech(state)
    if _is_being_made(state):
        effects += _withdraw(state)
        state.utterances.clear()
    else:
        state.utterances = deque(u for u in state.utterances if u.last_seq is not None)
    state.input.discard_waiting("cancelled")
    state.flush_wanted = False
    return [*effects, Emit(InputBufferCleared()), *pump(state, now)]


def _is_being_made(state: SessionState) -> bool:
    """Whether the model works on input of which nothing has been said yet."""
    response, pending = state.response.active, state.append.pending
    if response is not None:
        return not response.transcript
    return state.turns_expected or (pending is not None and not pending.is_continuation)


def _withdraw(state: SessionState) -> list[Effect]:
    """Enter a new epoch, in which the stages know nothing of the cancelled input."""
    if state.response.active is not None:
        return interrupt(state, "input_cancelled")
    return [leave_epoch(state)]
