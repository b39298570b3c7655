"""When a session has to do something by itself, and what is due now.

Rule 1: a deadline belongs to the module that knows its reason; here they only meet.
Rule 2: a deadline that has passed is one that `fire` can act upon. What waits for something else
        first, such as a unit that is out, has no deadline until then.
Rule 3: one wake-up is asked for at a time. One that comes too early finds nothing due and asks
        again, so a deadline that moves on with every append costs nothing.
"""

from collections.abc import Callable
from typing import Final

from session.effects import Effect, Emit, WakeAt
from session.endings import GOING_AWAY, NORMAL_CLOSURE, close, end_drain, retry_release
from session.idle_user import answer_silence, idle_deadline, watch_user
from session.leaving import leave, leaves_at
from session.lifecycle import Life
from session.on_attachment import detach_idle
from session.on_context import comment, comment_deadline
from session.pump import continuation_deadline, continue_answer, pump, residue_deadline
from session.socket_events import SessionExpiring
from session.state import SessionState

SESSION_CAP: Final = "max_session_duration"

_Deadline = Callable[[SessionState], float | None]
_Action = Callable[[SessionState, float], list[Effect]]


def fire(state: SessionState, now: float) -> list[Effect]:
    """Do what is due, in the order of the table."""
    state.wake_at_s = None
    effects: list[Effect] = []
    for deadline, act in _TABLE:
        due = deadline(state)
        if due is not None and due <= now:
            effects += act(state, now)
    return effects


def wake_up(state: SessionState, now: float) -> list[Effect]:
    """Ask for the next wake-up, unless one that is early enough has been asked for."""
    watch_user(state, now)
    due = next_deadline(state)
    if due is None:
        return []
    asked = state.wake_at_s
    if asked is not None and asked <= max(due, now):
        return []
    state.wake_at_s = due
    return [WakeAt(due)]


def next_deadline(state: SessionState) -> float | None:
    """Return the earliest deadline of all, or None."""
    deadlines = [deadline(state) for deadline, _ in _TABLE]
    return min((due for due in deadlines if due is not None), default=None)


# --- one pair for each reason: when, and what then ------------------------------------------


def _expiry(reason: str, code: int) -> _Action:
    """Return what ends a session whose time is up for `reason`."""

    def expire(state: SessionState, now: float) -> list[Effect]:
        del now
        return close(state, reason, code=code, is_expiring=True)

    return expire


def _release_at(state: SessionState) -> float | None:
    return state.release_retry_at_s


def _retry_release(state: SessionState, now: float) -> list[Effect]:
    del now
    return retry_release(state)


def _ends_at(state: SessionState) -> float | None:
    return state.lease.ends_at_s(state.limits) if state.life is Life.OPEN else None


def _drained_at(state: SessionState) -> float | None:
    if state.drain is None or state.life is not Life.OPEN:
        return None
    until_s = state.drain.until_s
    if state.is_busy:
        return until_s
    return min(until_s, state.playback.heard_at(state.response.last_id))


def _grace_over_at(state: SessionState) -> float | None:
    detached_at_s = state.attachment.detached_at_s
    if state.life is not Life.OPEN or detached_at_s is None:
        return None
    # Whatever goes on in the session: nobody is there to hear it.
    return detached_at_s + state.limits.disconnect_grace_s


def _idle_at(state: SessionState) -> float | None:
    if state.life is not Life.OPEN or state.append.is_busy:
        return None
    return state.lease.idle_at_s(state.limits)


def _silent_socket_at(state: SessionState) -> float | None:
    if state.life is not Life.OPEN or state.attachment.current is None:
        return None
    return state.lease.received_at_s + state.config.idle_timeout_s


def _announces_at(state: SessionState) -> float | None:
    return state.lease.announces_at_s(state.limits) if state.life is Life.OPEN else None


def _announce_end(state: SessionState, now: float) -> list[Effect]:
    state.lease.is_end_announced = True
    ends_at_s = state.lease.ends_at_s(state.limits)
    left_ms = 0 if ends_at_s is None else max(0, round((ends_at_s - now) * 1000))
    return [Emit(SessionExpiring(state.fence, SESSION_CAP, left_ms))]


# What ends the session comes first: then the rest has no deadline any more.
_TABLE: Final[tuple[tuple[_Deadline, _Action], ...]] = (
    (_release_at, _retry_release),
    (_ends_at, _expiry(SESSION_CAP, GOING_AWAY)),
    (_drained_at, end_drain),
    (leaves_at, leave),
    (_grace_over_at, _expiry("disconnect_grace_expired", NORMAL_CLOSURE)),
    (_idle_at, _expiry("idle_ttl_expired", NORMAL_CLOSURE)),
    (_silent_socket_at, detach_idle),
    (_announces_at, _announce_end),
    (comment_deadline, comment),
    (idle_deadline, answer_silence),
    (residue_deadline, pump),
    (continuation_deadline, continue_answer),
)
