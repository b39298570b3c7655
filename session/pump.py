"""What goes to Stage0 next, and when.

Rule 1: one unit is out at a time; a pending session.update goes first, so that settings change
        between units.
Rule 2: committed turns go before the open stream.
Rule 3: the open stream flows only in sessions where the model speaks on its own, in full units,
        or as a residue when an utterance has ended and the model takes short units.
Rule 4: an answer that is not finished goes on over synthetic silence, but never while real input
        is waiting or has just come (seed: silence continuation). Nor does silence go in front of
        what a muted microphone left of a unit: that goes first, silence at its tail.
Rule 5: what is committed and asks for nothing waits for the next answer; where the client wants the
        words of each item, the model hears it at once, and remembers it for that answer. Of several
        spoken items that one answer is asked for to, it hears all but the last so: each has its
        own words.
Rule 6: silence is fed for one owner, an answer or a turn of the model that has none yet. Whether
        it still wants any is looked at when the time has come, not when it was set.
"""

from collections import deque
from dataclasses import replace

from session.config import AnswerSettings, RuntimeConfig
from session.effects import ConfigureStages, Effect, SubmitUnit
from session.ids import ItemId, OperationId
from session.ledger.spans import Reservation
from session.lifecycle import Life
from session.state import SessionState, Utterance
from session.unit import INPUT_RATE_HZ, SAMPLE_BYTES, Unit, samples_to_ms
from session.user_items import add_user_item


def pump(state: SessionState, now: float) -> list[Effect]:
    """Submit the next unit if one may go now."""
    if state.life is not Life.OPEN:
        return []
    promoted = promote_deferred(state)
    if state.append.is_busy:
        return promoted
    if state.updates:
        return promoted + start_update(state)
    reservation = _reserve_next(state, now)
    if reservation is not None:
        return [*promoted, _submit(state, reservation, now)]
    return promoted + continue_answer(state, now)


def start_update(state: SessionState) -> list[Effect]:
    """Ask the stages about the oldest waiting update, unless they have been asked already."""
    update = state.updates[0]
    if update.generation is not None:
        return []
    generation = state.config_generation + 1
    runtime: RuntimeConfig = state.runtime(update.candidate)
    state.updates[0] = replace(update, generation=generation)
    return [ConfigureStages(state.fence, runtime, generation)]


def continue_answer(state: SessionState, now: float) -> list[Effect]:
    """Submit a unit of silence if the answer needs one and its time has come."""
    due = continuation_deadline(state)
    if due is None or now < due:
        return []
    spent = state.append.count_continuation(_continuation_owner(state))
    is_last = spent >= _continuation_limit(state)
    silence = bytes(state.unit_bytes)
    unit = Unit(pcm=silence, is_continuation=True, force_listen=is_last)
    return [_submit_unit(state, unit, now)]


def continuations_spent(state: SessionState) -> bool:
    """Whether the active answer, or the turn that has none, has had all the silence it may."""
    spent = state.append.continuations_of(_continuation_owner(state))
    return spent >= _continuation_limit(state)


def _continuation_owner(state: SessionState) -> str:
    response = state.response.active
    if response is not None:
        return f"response:{response.response_id}"
    return f"model-turn:{state.fence.turn}"


def _continuation_limit(state: SessionState) -> int:
    limits = state.limits
    if state.config.auto_response:
        return limits.max_continuations
    return limits.max_continuations_turn_mode


def promote_deferred(state: SessionState) -> list[Effect]:
    """Overlap that waited for the end of an answer, however that ended, is the next turn."""
    if state.response.active is not None or not state.input.has_deferred:
        return []
    if state.drain is not None:
        return []  # the session ends with what is being said now
    turn = state.input.promote_deferred()
    item_id = turn.item_id or ItemId(state.ids.new("item"))
    audio_ms = samples_to_ms(turn.n_bytes // SAMPLE_BYTES, INPUT_RATE_HZ)
    return list(add_user_item(state, item_id, turn.text, audio_ms=audio_ms))


def _reserve_next(state: SessionState, now: float) -> Reservation | None:
    ledger = state.input
    if ledger.has_wanted_turn:
        hears_first = state.profile.input_transcription and ledger.has_several_spoken
        heard = ledger.reserve_unheard() if hears_first else None
        return heard or ledger.reserve_turns()
    if _tells_words(state):
        return ledger.reserve_unheard()
    if not state.config.auto_response or state.drain is not None:
        return None
    if ledger.open_bytes >= state.unit_bytes:
        return ledger.reserve_open(state.unit_bytes)
    if state.flush_wanted and ledger.open_bytes > 0:
        state.flush_wanted = False
        return ledger.reserve_open(ledger.open_bytes)
    state.flush_wanted = False
    due = residue_deadline(state)
    if due is not None and now >= due:
        return ledger.reserve_open(ledger.open_bytes)
    return None


def _tells_words(state: SessionState) -> bool:
    """Whether what is committed is heard at once, so that its words can be told."""
    is_free = not state.config.auto_response and state.response.active is None
    return is_free and state.config.wants_transcription and state.profile.input_transcription


def _submit(state: SessionState, reservation: Reservation, now: float) -> SubmitUnit:
    turn = reservation.turn
    due = _input_is_over_at(state)
    is_muted = turn is None and due is not None and now >= due
    needs_whole = turn is not None and not state.profile.accepts_short_units
    pcm = reservation.pcm
    asks = turn is not None and not reservation.is_heard_only
    is_bare = turn is not None and turn.is_bare
    if is_bare and needs_whole:
        pcm = bytes(state.unit_bytes)  # it can not be asked over nothing at all
    unit = Unit(
        pcm=_whole_units(state, pcm) if is_muted or needs_whole else pcm,
        text=turn.text if turn is not None else "",
        is_speech=reservation.is_speech,
        closes_input=asks,
        force_listen=reservation.force_listen or reservation.is_heard_only,
        options=_options(state) if asks else None,
        tool_outputs=turn.tool_outputs if turn is not None else (),
        messages=reservation.messages,
        is_bare=is_bare,
        is_heard_only=reservation.is_heard_only,
        is_fresh=turn is not None and turn.is_fresh,
        video_frames=reservation.video_frames,
    )
    state.turns_expected = state.turns_expected or asks
    return _submit_unit(state, unit, now)


def _options(state: SessionState) -> AnswerSettings | None:
    """Return the settings of the one answer that a turn is asked for with, if there are any."""
    active = state.response.active
    if active is None:
        return None
    options = active.options
    settings = replace(options.settings, is_out_of_band=options.is_out_of_band)
    return None if settings == AnswerSettings() else settings


def _submit_unit(state: SessionState, unit: Unit, now: float) -> SubmitUnit:
    pending = state.append.begin(
        OperationId(state.ids.new("op")),
        state.config_generation,
        is_continuation=unit.is_continuation,
        now=now,
    )
    told_byte = state.input.waits_from_byte
    state.utterances = deque(
        each if _waits(state, each, told_byte) else _brought(each, pending.seq)
        for each in state.utterances
    )
    return SubmitUnit(
        state.fence, pending.seq, pending.operation_id, unit, pending.config_generation
    )


def _waits(state: SessionState, utterance: Utterance, told_byte: int) -> bool:
    """Whether the model lacks the end of an utterance when it has all to `told_byte`."""
    if utterance.is_whole:
        return state.input.queue.holds(utterance.item_id)
    return utterance.end_byte > told_byte  # the model was busy when it came


def _brought(utterance: Utterance, seq: int) -> Utterance:
    """Note that unit `seq` brings its end to the model, if it has ended and that is news."""
    if utterance.ended_ms is None or utterance.last_seq is not None:
        return utterance
    return replace(utterance, last_seq=seq)


def _whole_units(state: SessionState, pcm: bytes) -> bytes:
    """Pad with silence, at the tail, to whole units."""
    missing = -len(pcm) % state.unit_bytes
    return pcm + bytes(missing // SAMPLE_BYTES * SAMPLE_BYTES)


def _input_is_over_at(state: SessionState) -> float | None:
    """When a client that streams is taken to have stopped; None when it does not stream."""
    last_s = state.append.last_input_at_s
    if not state.config.auto_response or last_s is None or state.drain is not None:
        return None
    return last_s + 2 * state.profile.unit_ms / 1000


def residue_deadline(state: SessionState) -> float | None:
    """When what a muted microphone left of a unit goes to the model; None when nothing is left."""
    if state.life is not Life.OPEN or state.append.is_busy or state.updates:
        return None
    return _input_is_over_at(state) if state.input.open_bytes > 0 else None


def continuation_deadline(state: SessionState) -> float | None:
    """When the next unit of silence is due; None when none is needed, or none may go now."""
    if state.life is not Life.OPEN or state.append.is_busy or state.updates:
        return None
    response = state.response.active
    wants_more = response is not None and not response.is_turn_ended
    if not (wants_more or state.turns_expected) or continuations_spent(state):
        return None
    due = (state.append.last_submit_at_s or 0.0) + state.profile.unit_ms / 1000
    # A live microphone fills the next unit by itself; silence must not get into its speech.
    over_s = _input_is_over_at(state)
    return due if over_s is None else max(due, over_s)
