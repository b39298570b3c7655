"""Ends a session whose server is about to go away (a drain of the service), and cuts nobody off.

Rule 1: the client is told at once, and the session goes on: who speaks is heard and answered.
Rule 2: it ends at its next quiet moment, when for two units nobody has spoken, nothing is played,
        nothing waits for an answer and nothing is asked of the stages.
Rule 3: at the deadline it ends whatever goes on, for another reason than at a quiet moment.
Rule 4: a session without a client waits for it as long as its grace lasts: whoever comes back
        hears what it missed, is told, and then goes like the others.
"""

from typing import Final, assert_never

from session.effects import Effect, Emit
from session.endings import SERVICE_RESTART, close
from session.lifecycle import Life
from session.service_stimuli import DrainRequested, DrainWithdrawn, ServiceOrder
from session.socket_events import SessionExpiring
from session.state import Leaving, SessionState

AT_QUIET: Final = "server_drain"
AT_DEADLINE: Final = "server_drain_deadline"
QUIET_UNITS: Final = 2
"""So long nobody says anything in a quiet moment: a model may think that long about an answer."""


def handle(state: SessionState, order: ServiceOrder) -> list[Effect]:
    """Note that the session has to leave, or that it may stay after all."""
    match order:
        case DrainRequested(until_s=until_s):
            if state.leaving is None or state.leaving.until_s != until_s:
                state.leaving = Leaving(until_s)
        case DrainWithdrawn():
            state.leaving = None
        case _:
            assert_never(order)
    return []


def leave(state: SessionState, now: float) -> list[Effect]:
    """Tell the client, once; and end the session when its time has come."""
    leaving = state.leaving
    if leaving is None or state.life is not Life.OPEN:
        return []
    effects: list[Effect] = []
    if not leaving.is_told:
        leaving.is_told = True
        left_ms = max(0, round((leaving.until_s - now) * 1000))
        effects.append(Emit(SessionExpiring(state.fence, AT_QUIET, left_ms)))
    if not _is_quiet(state):
        leaving.quiet_since_s = None
    elif leaving.quiet_since_s is None:
        leaving.quiet_since_s = now
    quiet_at_s = _quiet_at(state, leaving)
    if quiet_at_s is not None and quiet_at_s <= now:
        return effects + close(state, AT_QUIET, code=SERVICE_RESTART, is_expiring=True)
    if leaving.until_s <= now:
        return effects + close(state, AT_DEADLINE, code=SERVICE_RESTART, is_expiring=True)
    return effects


def leaves_at(state: SessionState) -> float | None:
    """When the session ends for this, as far as is known now."""
    leaving = state.leaving
    if leaving is None or state.life is not Life.OPEN:
        return None
    quiet_at_s = _quiet_at(state, leaving)
    return leaving.until_s if quiet_at_s is None else min(leaving.until_s, quiet_at_s)


def _quiet_at(state: SessionState, leaving: Leaving) -> float | None:
    """When it will have been quiet for long enough; None while it is not quiet."""
    if leaving.quiet_since_s is None or state.append.is_busy:
        return None
    pause_s = QUIET_UNITS * state.profile.unit_ms / 1000
    return max(leaving.quiet_since_s, state.playback.heard_at(state.response.last_id)) + pause_s


def _is_quiet(state: SessionState) -> bool:
    """Whether nobody speaks and nothing waits; what is still played is looked at elsewhere.

    A unit that is out is no matter: a stream of silence always has one.
    """
    if state.attachment.detached_at_s is not None or _user_says_something(state):
        return False
    is_asked = state.turns_expected or state.input.has_wanted_turn or state.input.turns > 0
    waits = state.wants_comment or state.calls.awaits_any or bool(state.updates)
    return not (is_asked or waits or state.response.active is not None)


def _user_says_something(state: SessionState) -> bool:
    """Whether the user speaks, or an item is open.

    Where the model hears a stream and no voice is detected, nobody knows whether the user speaks.
    """
    if state.detector is not None:
        return state.detector.is_speaking or bool(state.input.open_item.texts)
    if state.config.auto_response:
        return bool(state.input.open_item.texts)
    return not state.input.open_item.is_empty
