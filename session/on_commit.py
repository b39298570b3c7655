"""Handlers that make items of input: commit, and the commit that voice detection asks for.

The table is the seed's commit-to-response contract; each function below is one of its rows.
"""

from session.answering import reserve_answer, show_answer
from session.config import ResponseOptions
from session.effects import Effect, Emit
from session.errors import IllegalNow, InputBackpressure, StageFailed
from session.events import (
    ErrorRaised,
    InputItemCommitted,
    ListenDecided,
)
from session.ids import ItemId
from session.lifecycle import TurnTrigger, move_turn
from session.pump import promote_deferred, pump
from session.speech_edges import close_open_speech
from session.state import SessionState
from session.stimuli import InputCommitted
from session.unit import INPUT_RATE_HZ, SAMPLE_BYTES, samples_to_ms
from session.user_items import add_user_item, forget_words, item_to_make, target_turn


def handle(state: SessionState, commit: InputCommitted, now: float) -> list[Effect]:
    """Apply one commit of the client."""
    opened = state.input.open_item
    if commit.is_speech is False:
        return close_open_speech(state) + _silence(state, now)
    if opened.has_failed:
        return _abort(state, commit.event_id)
    if opened.is_empty:
        error = IllegalNow("nothing to commit: append audio first", code="input_audio_buffer_empty")
        return [Emit(ErrorRaised(error, commit.event_id))]
    if not opened.texts and opened.speech_bytes == 0 and commit.is_speech is None:
        return close_open_speech(state) + _silence(state, now)
    if not _has_room(state):
        return [_too_many_turns(state, commit.event_id)]
    return close_open_speech(state) + _commit(state, commit.create_response, now)


def _has_room(state: SessionState) -> bool:
    """Whether one more committed turn may wait. What joins a deferred one is no further turn."""
    joins = state.response.active is not None and state.input.has_deferred
    return joins or state.input.pending_turns < state.limits.max_pending_turns_per_session


def _too_many_turns(state: SessionState, event_id: str | None) -> Emit:
    limit = state.limits.max_pending_turns_per_session
    error = InputBackpressure(f"{limit} committed turns are already waiting")
    return Emit(ErrorRaised(error, event_id))


def _abort(state: SessionState, event_id: str | None) -> list[Effect]:
    """The model could not take the audio before this commit: there is no whole item to make."""
    effects = close_open_speech(state)
    forget_words(state, state.input.open_item.item_id)
    state.input.discard_open("commit_aborted")
    state.flush_wanted = False
    error = StageFailed(
        "the audio before this commit failed; append it again", code="commit_aborted"
    )
    return [*effects, Emit(ErrorRaised(error, event_id))]


def _commit(state: SessionState, creates: bool | None, now: float) -> list[Effect]:
    if state.response.active is not None:
        spoken_bytes = state.input.open_item.speech_bytes
        spoken_ms = samples_to_ms(spoken_bytes // SAMPLE_BYTES, INPUT_RATE_HZ)
        return _overlapping(state, spoken_ms)
    wants_answer = state.config.auto_response if creates is None else creates
    item_id = item_to_make(state)
    effects = commit_open(state, item_id, is_wanted=wants_answer)
    if wants_answer and not state.config.auto_response:
        effects += show_requested(state, ResponseOptions())
    return effects + pump(state, now)


def commit_by_detector(
    state: SessionState, item_id: ItemId, *, creates_response: bool, spoken_ms: int
) -> list[Effect]:
    """Voice detection heard the end of an utterance in a session without auto-response."""
    if state.input.open_item.is_empty:
        return []
    if not _has_room(state):
        forget_words(state, item_id)
        state.input.discard_open("too_many_turns")
        return [_too_many_turns(state, None)]
    if state.response.active is not None:
        return _overlapping(state, spoken_ms)
    item_id = item_to_make(state)
    effects = commit_open(state, item_id, is_wanted=creates_response)
    if creates_response:
        effects += show_requested(state, ResponseOptions())
    return effects


def commit_open(
    state: SessionState, item_id: ItemId, *, is_wanted: bool, audio_ms: int | None = None
) -> list[Effect]:
    """Make the open input an item and a turn; say so before anything the model makes of it.

    The item is as long as its audio, unless `audio_ms` says otherwise.
    """
    promoted = promote_deferred(state)  # an answer may have ended just now: that came earlier
    opened = state.input.open_item
    turn = target_turn(state)
    if audio_ms is None:
        audio_ms = samples_to_ms(opened.audio_bytes // SAMPLE_BYTES, INPUT_RATE_HZ)
    previous = state.history.last_id
    added, done = add_user_item(state, item_id, opened.text, audio_ms=audio_ms)
    state.input.commit_open(item_id, is_wanted=is_wanted)
    state.turn = move_turn(state.turn, TurnTrigger.USER_COMMITTED)
    committed = InputItemCommitted(
        fence=state.fence,
        item_id=item_id,
        previous_item_id=previous,
        history_len=len(state.history),
        expects_no_response=not is_wanted,
        turn=turn,
    )
    return [*promoted, added, Emit(committed), done]


def show_requested(state: SessionState, options: ResponseOptions) -> list[Effect]:
    """Start an answer that was asked for: visible at once, and everything committed is due."""
    reserve_answer(state, options)
    state.input.queue.want()
    return show_answer(state)


def _silence(state: SessionState, now: float) -> list[Effect]:
    item_id = item_to_make(state)
    is_empty, turn = state.input.open_item.is_empty, target_turn(state)
    forget_words(state, item_id)
    state.input.discard_open("declared_silence")
    committed = InputItemCommitted(
        fence=state.fence,
        item_id=item_id,
        previous_item_id=state.history.last_id,
        history_len=len(state.history),
        is_empty=is_empty,
        is_speech=False,
        expects_no_response=True,
        turn=turn,
    )
    listen = ListenDecided(state.fence, "silence_or_noise", is_model_listen=False)
    return [Emit(committed), Emit(listen), *pump(state, now)]


def _overlapping(state: SessionState, spoken_ms: int) -> list[Effect]:
    """A commit during an answer: a short one is an acknowledgement, a longer one waits."""
    opened, turn = state.input.open_item, target_turn(state)
    item_id = item_to_make(state)
    is_short = spoken_ms <= state.config.overlap_short_ack_ms and not opened.texts
    forget_words(state, item_id)
    if is_short:
        state.input.discard_open("overlap_acknowledgement")
    else:
        state.input.defer_open(item_id)
    committed = InputItemCommitted(
        fence=state.fence,
        item_id=item_id,
        previous_item_id=state.history.last_id,
        history_len=len(state.history),
        expects_no_response=is_short,
        is_overlap_ack=is_short,
        is_deferred=not is_short,
        turn=turn,
    )
    return [Emit(committed)]
