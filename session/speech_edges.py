"""Tells the client where the user's speech begins and ends; the two are always paired."""

from dataclasses import replace

from session.effects import Effect, Emit
from session.events import UserSpeechStarted, UserSpeechStopped
from session.ids import ItemId
from session.lifecycle import TurnTrigger, move_turn
from session.state import SessionState, Utterance
from session.unit import SAMPLE_BYTES
from session.user_items import reserve_target
from session.vad import Offset, Onset


def close_open_speech(state: SessionState) -> list[Effect]:
    """End an open speech_started with its speech_stopped: they are always paired."""
    offset = state.detector.end_now() if state.detector is not None else None
    return [] if offset is None else tell_edge(state, offset)


def tell_edge(state: SessionState, edge: Onset | Offset) -> list[Effect]:
    """Tell the client about an edge of speech."""
    if isinstance(edge, Onset):
        item_id = ItemId(state.ids.new("item"))
        state.speech_item_id = item_id
        state.input.open_item.item_id = item_id
        reserve_target(state)
        state.utterances.append(Utterance(item_id, edge.audio_start_ms))
        state.turn = move_turn(state.turn, TurnTrigger.USER_STARTED)
        return [Emit(UserSpeechStarted(edge.audio_start_ms, item_id))]
    spoken, state.speech_item_id = state.speech_item_id, None
    if state.utterances and state.utterances[-1].item_id == spoken:
        state.utterances[-1] = replace(
            state.utterances[-1],
            ended_ms=edge.audio_end_ms,
            end_byte=edge.found_at_sample * SAMPLE_BYTES,
        )
    state.turn = move_turn(state.turn, TurnTrigger.USER_STOPPED)
    return [] if spoken is None else [Emit(UserSpeechStopped(edge.audio_end_ms, spoken))]
