"""Handlers for what the stages answer. Every stimulus here has passed the fence already."""

from typing import assert_never

from session.answering import (
    end_answer,
    fail_answer,
    reserve_answer,
    show_chunk,
    speak_next,
)
from session.config import ResponseOptions
from session.effects import Effect, Emit
from session.endings import stage_lost
from session.errors import DuplexError, StageError
from session.events import (
    ListenDecided,
)
from session.ids import ItemId
from session.item_events import (
    InputTranscribed,
    ItemAdded,
    ItemDone,
    ItemView,
)
from session.ledger.history import Item
from session.ledger.response import CallJob, Response, SpeechJob, TextJob
from session.pump import continuations_spent, pump
from session.state import SessionState, Utterance
from session.stimuli import SpeechArrived, SpeechFailed, SpeechFinished, UnitFailed, UnitFinished
from session.unit import (
    INPUT_RATE_HZ,
    SAMPLE_BYTES,
    Decision,
    SpeechChunk,
    UnitResult,
    samples_to_ms,
)

StageAnswer = UnitFinished | UnitFailed | SpeechArrived | SpeechFinished | SpeechFailed


def handle(state: SessionState, stimulus: StageAnswer, now: float) -> list[Effect]:
    """Apply one answer of a stage."""
    match stimulus:
        case UnitFinished(seq=seq, result=result):
            if _comes_too_soon(state, result):
                state.append.keep(seq, result)
                return []
            return _unit_finished(state, seq, result, now)
        case UnitFailed(seq=seq, error=error):
            return _unit_failed(state, seq, error, now)
        case SpeechArrived(seq=seq, chunk=chunk):
            return _speech_arrived(state, seq, chunk, now)
        case SpeechFinished(seq=seq):
            return _speech_finished(state, seq, now)
        case SpeechFailed(seq=seq, error=error):
            if _spoken_by(state, seq) is None:
                return []
            if _is_fatal(error):
                return stage_lost(state, "stage1", error)
            return fail_answer(state, error, "speech_failed") + pump(state, now)
        case _:
            assert_never(stimulus)


def _comes_too_soon(state: SessionState, result: UnitResult) -> bool:
    """Whether the model speaks again while the sound of an answer that is over is still made."""
    active = state.response.active
    return result.decision is Decision.SPEAK and active is not None and active.is_turn_ended


def _early_answer(state: SessionState, now: float) -> list[Effect]:
    """Deal with the answer that came too soon, once the one before it has ended."""
    pending, result = state.append.pending, state.append.early
    if pending is None or result is None or state.response.active is not None:
        return []
    return _unit_finished(state, pending.seq, result, now)


def _unit_failed(state: SessionState, seq: int, error: DuplexError, now: float) -> list[Effect]:
    if state.append.pending is None or state.append.pending.seq != seq:
        return []
    if _is_fatal(error):
        return stage_lost(state, "stage0", error)
    # Sending the same audio again would fail again, for ever.
    for lost in state.input.settle(discard="unit_failed"):
        state.calls.withdraw(lost.call_id)
    return fail_answer(state, error, "runtime_append_failed") + pump(state, now)


def _is_fatal(error: DuplexError) -> bool:
    """Whether the stage has lost the session with this call."""
    return isinstance(error, StageError) and not error.survives


def _unit_finished(state: SessionState, seq: int, result: UnitResult, now: float) -> list[Effect]:
    pending = state.append.commit(seq)
    if pending is None:
        return []
    if not pending.is_continuation:
        state.input.settle()
    effects = _user_words(state, result.heard) if result.heard else []
    while state.utterances and _is_past(state.utterances[0], seq):
        effects += _no_words(state, state.utterances.popleft())
    if result.decision is Decision.SPEAK:
        effects += _speak(state, seq, result, now)
    else:
        effects += _listen(state, result, now)
    if result.turn_end:
        # The model's turn is over; the answer keeps the fence it began with (fence: Rule 1).
        state.fence = state.fence.next_turn()
    return effects + pump(state, now)


def _speak(state: SessionState, seq: int, result: UnitResult, now: float) -> list[Effect]:
    response = state.response.active or reserve_answer(state, ResponseOptions())
    state.turns_expected = False
    if result.metrics is not None:
        response.metrics.append(result.metrics)
    if result.turn_end or continuations_spent(state):
        response.is_turn_ended = True
    response.is_cut = result.is_cut
    if result.speech_follows and response.wants_audio:
        response.jobs.append(SpeechJob(seq, result.turn_end))
    elif result.text:
        response.jobs.append(TextJob(result.text, result.turn_end))
    response.jobs.extend(CallJob(call) for call in result.calls)
    return speak_next(state, response, now)


def _listen(state: SessionState, result: UnitResult, now: float) -> list[Effect]:
    response = state.response.active
    if response is None:
        state.turns_expected = False
        return [Emit(ListenDecided(state.fence, "model_listen", is_model_listen=True))]
    if result.turn_end:
        response.is_turn_ended = True
    if response.has_begun or not response.is_idle:
        if continuations_spent(state):
            response.is_turn_ended = True
        return speak_next(state, response, now)
    return _listen_instead_of_answer(state, response, result)


def _listen_instead_of_answer(
    state: SessionState, response: Response, result: UnitResult
) -> list[Effect]:
    """The client asked for an answer and the model has none (yet)."""
    if not (result.turn_end or continuations_spent(state)):
        return []
    reason = "model_listen" if result.turn_end else "continuation_limit"
    state.turns_expected = False
    shown = response.response_id if response.is_visible else None
    listen = ListenDecided(state.fence, reason, is_model_listen=result.turn_end, response_id=shown)
    return [Emit(listen), *end_answer(state, "completed", reason)]


def _user_words(state: SessionState, heard: str) -> list[Effect]:
    """The model tells what the user said: complete the item, or make one for streamed speech."""
    utterance = state.utterances.popleft() if state.utterances else None
    item_id = ItemId(state.ids.new("item")) if utterance is None else utterance.item_id
    if utterance is not None and utterance.is_deleted:
        return []
    known = state.history.get(item_id)
    if known is not None:
        state.history.change(item_id, text=heard)
        return [Emit(InputTranscribed(item_id, heard, known.audio_ms))]
    if state.input.open_item.item_id == item_id:
        state.input.open_item.item_id = None  # what is committed yet is an item of its own
    audio_ms = _spoken_ms(state, utterance)
    previous = state.history.last_id
    state.history.add(Item(item_id, "user", heard, is_audio=True, audio_ms=audio_ms))
    added = ItemView(item_id, "user", "in_progress", "", is_audio=True)
    done = ItemView(item_id, "user", "completed", heard, is_audio=True, audio_ms=audio_ms)
    return [
        Emit(ItemAdded(added, previous)),
        Emit(InputTranscribed(item_id, heard, audio_ms)),
        Emit(ItemDone(done, previous)),
    ]


def _no_words(state: SessionState, utterance: Utterance) -> list[Effect]:
    """The model found no words in it: say so where the words of every item are waited for."""
    item = state.history.get(utterance.item_id)
    if item is None or not state.config.wants_transcription:
        return []
    return [Emit(InputTranscribed(item.item_id, "", item.audio_ms))]


def _is_past(utterance: Utterance, seq: int) -> bool:
    return utterance.last_seq is not None and utterance.last_seq <= seq


def _spoken_ms(state: SessionState, utterance: Utterance | None) -> int:
    """How long an utterance is; one that has not been found to end lasts until now."""
    if utterance is None:
        return 0
    now_ms = samples_to_ms(state.input.total_bytes // SAMPLE_BYTES, INPUT_RATE_HZ)
    ended_ms = now_ms if utterance.ended_ms is None else utterance.ended_ms
    return max(0, ended_ms - utterance.began_ms)


def _spoken_by(state: SessionState, seq: int) -> Response | None:
    response = state.response.active
    if response is None or response.speaking is None or response.speaking.seq != seq:
        return None
    return response


def _speech_arrived(state: SessionState, seq: int, chunk: SpeechChunk, now: float) -> list[Effect]:
    response = _spoken_by(state, seq)
    if response is None or not (chunk.pcm or chunk.transcript):
        return []
    return show_chunk(state, response, chunk, now)


def _speech_finished(state: SessionState, seq: int, now: float) -> list[Effect]:
    response = _spoken_by(state, seq)
    if response is None:
        return []
    response.speaking = None
    if continuations_spent(state) and not response.jobs:
        response.is_turn_ended = True
    effects = speak_next(state, response, now)
    return effects + _early_answer(state, now) + pump(state, now)
