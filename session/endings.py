"""Handlers for a session's end: asked for, forced by a lost stage, or due.

The end has two steps. The first ends what goes on and asks both stages to release everything. The
second is their confirmation, and only that frees the slot; until it comes they are asked again.
"""

from typing import Final, assert_never

from session.answering import end_answer, enter_next_epoch
from session.effects import CloseSocket, CloseStages, Effect, Emit
from session.errors import DuplexError
from session.events import ErrorRaised, SessionClosed, SessionExpired
from session.lifecycle import Life, LifeTrigger, move_life
from session.socket_stimuli import ReaderStalled
from session.speech_edges import close_open_speech
from session.state import Drain, SessionState
from session.stimuli import (
    CloseRequested,
    ReleaseFailed,
    StageLost,
    StagesReleased,
)

NORMAL_CLOSURE: Final = 1000
GOING_AWAY: Final = 1001
POLICY_VIOLATION: Final = 1008
INTERNAL_ERROR: Final = 1011
SERVICE_RESTART: Final = 1012
TRY_AGAIN_LATER: Final = 1013

Ending = CloseRequested | ReaderStalled | StageLost | StagesReleased | ReleaseFailed


def handle(state: SessionState, stimulus: Ending, now: float) -> list[Effect]:
    """Apply one step of the end."""
    match stimulus:
        case CloseRequested():
            return _close_asked(state, stimulus, now)
        case ReaderStalled(attachment=attachment):
            # A socket that was replaced or lost meanwhile is no reason to end the session.
            return _stalled(state) if state.attachment.heeds(attachment) else []
        case StageLost(stage=stage, error=error):
            return stage_lost(state, stage, error)
        case StagesReleased():
            return _released(state)
        case ReleaseFailed():
            return _release_failed(state, now)
        case _:
            assert_never(stimulus)


def close(
    state: SessionState, reason: str, *, code: int, is_expiring: bool = False
) -> list[Effect]:
    """Begin the end: no answer goes on, and both stages are asked to release everything."""
    if state.life not in (Life.OPENING, Life.OPEN):
        state.life = move_life(state.life, LifeTrigger.CLOSE_ASKED)
        return []
    was_open = state.life is Life.OPEN
    state.life = move_life(state.life, LifeTrigger.CLOSE_ASKED)
    state.close_reason, state.close_code, state.is_expiring = reason, code, is_expiring
    effects = close_open_speech(state)
    if state.response.active is not None:
        effects += end_answer(state, "cancelled", reason)
    return [*effects, *give_back(state)] if was_open else effects


def _close_asked(state: SessionState, asked: CloseRequested, now: float) -> list[Effect]:
    if asked.drain_s > 0:
        if state.drain is not None:
            return []  # asked for once already
        if state.life is Life.OPEN and _says_something(state, now):
            state.drain = Drain(now + asked.drain_s, asked.reason, asked.event_id)
            return close_open_speech(state)
    if state.accepts_input:
        state.close_event_id = asked.event_id
    return close(state, asked.reason, code=NORMAL_CLOSURE)


def end_drain(state: SessionState, now: float) -> list[Effect]:
    """Close a session that waits for the end of what goes on, once that has come or it is time."""
    drain = state.drain
    if drain is None or state.life is not Life.OPEN:
        return []
    if _says_something(state, now) and now < drain.until_s:
        return []
    state.close_event_id = drain.event_id
    return close(state, drain.reason, code=NORMAL_CLOSURE)


def _says_something(state: SessionState, now: float) -> bool:
    """Whether something goes on, or what was said is still being played."""
    return state.is_busy or now < state.playback.heard_at(state.response.last_id)


def give_back(state: SessionState) -> list[Effect]:
    """Enter the last epoch and ask both stages to release everything."""
    enter_next_epoch(state)
    state.input.discard_waiting("session_closed")
    state.updates.clear()
    return [CloseStages(state.fence)]


def stage_lost(state: SessionState, stage: str, error: DuplexError) -> list[Effect]:
    """End a session whose state at a stage is gone. Told twice, it ends once."""
    if state.life is not Life.OPEN:
        return []
    failed: list[Effect] = [Emit(ErrorRaised(error))]
    if state.response.active is not None:
        failed += end_answer(state, "failed", "stage_lost")
    ending = close(state, f"{stage}_lost", code=INTERNAL_ERROR, is_expiring=True)
    return failed + ending


def retry_release(state: SessionState) -> list[Effect]:
    """Ask the stages again to release what they have not confirmed."""
    state.release_retry_at_s = None
    return [CloseStages(state.fence)]


def _stalled(state: SessionState) -> list[Effect]:
    """The client does not read: its answer fails, and the session ends (design: slow reader)."""
    if state.life is not Life.OPEN:
        return []
    failed: list[Effect] = []
    if state.response.active is not None:
        failed = end_answer(state, "failed", "slow_reader")
    return failed + close(state, "slow_reader", code=TRY_AGAIN_LATER, is_expiring=True)


def _released(state: SessionState) -> list[Effect]:
    was_told = state.life is Life.HOLDING
    state.life = move_life(state.life, LifeTrigger.RELEASED)
    state.release_retry_at_s = None
    return [] if was_told else _farewell(state)


def _release_failed(state: SessionState, now: float) -> list[Effect]:
    was_told = state.life is Life.HOLDING
    state.life = move_life(state.life, LifeTrigger.RELEASE_FAILED)
    state.release_retry_at_s = now + state.limits.reaper_interval_s
    return [] if was_told else _farewell(state)


def _farewell(state: SessionState) -> list[Effect]:
    terminal: SessionExpired | SessionClosed
    if state.is_expiring:
        terminal = SessionExpired(state.fence, state.close_reason)
    else:
        terminal = SessionClosed(state.fence, state.close_reason, state.close_event_id)
    return [
        Emit(terminal),
        CloseSocket(state.close_code, state.close_reason),
    ]
