"""Ends a session whose server is about to go away (a drain of the service), and cuts nobody off.

Rule 1: the client is told at once, and the session goes on: who speaks is heard and answered.
Rule 2: it ends at its next quiet moment, when for two units nobody has spoken, nothing is played,
        nothing waits for an answer and nothing is asked of the stages.
Rule 3: at the deadline it ends whatever goes on, for another reason than at a quiet moment.
Rule 4: a session without a client waits for it as long as its grace lasts: whoever comes back
        hears what it missed, is told, and then goes like the others.
Rule 5: what only the client can do (a function's output, a request for an answer, the rest of an
        item) is waited for as long as something of it comes, and for CLIENT_WITHIN_S after that.
"""

from typing import Final, assert_never

from session.effects import Effect, Emit
from session.endings import SERVICE_RESTART, close
from session.lifecycle import Life
from session.service_stimuli import DrainRequested, DrainWithdrawn, ServiceOrder
from session.socket_events import SessionExpiring
from session.state import Leaving, Lull, SessionState

AT_QUIET: Final = "server_drain"
AT_DEADLINE: Final = "server_drain_deadline"
QUIET_UNITS: Final = 2
"""So long nobody says anything in a quiet moment: a model may think that long about an answer."""
CLIENT_WITHIN_S: Final = 60.0
"""So long nothing comes of what the client alone can do: it may never come."""


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
    owed = None if _is_busy(state) else _owed(state)
    if owed is None:
        leaving.lull = None
    elif leaving.lull is None or leaving.lull.owed != owed:
        leaving.lull = Lull(now, owed)
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
    lull = leaving.lull
    if lull is None or state.append.is_busy:
        return None
    pause_s = CLIENT_WITHIN_S if any(lull.owed) else QUIET_UNITS * state.profile.unit_ms / 1000
    return max(lull.since_s, state.playback.heard_at(state.response.last_id)) + pause_s


def _is_busy(state: SessionState) -> bool:
    """Whether the user speaks or the server owes something; what is still played is no matter here.

    Nor is a unit that is out: a stream of silence always has one.
    """
    if state.attachment.detached_at_s is not None or _user_speaks(state):
        return True
    is_asked = state.turns_expected or state.input.has_wanted_turn
    waits = state.wants_comment or bool(state.updates)
    return is_asked or waits or state.response.active is not None


def _user_speaks(state: SessionState) -> bool:
    return state.detector is not None and state.detector.is_speaking


def _owed(state: SessionState) -> tuple[int, ...]:
    """How much there is of each thing that waits for the client alone.

    Where the model hears a stream and no voice is detected, nobody knows whether the user speaks.
    """
    item = state.input.open_item
    hears_stream = state.detector is not None or state.config.auto_response
    audio_bytes = 0 if hears_stream else item.audio_bytes
    return (state.calls.awaited, state.input.turns, len(item.texts), audio_bytes)
