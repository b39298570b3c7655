"""When a session has to do something by itself, and what is due now.

Rule 1: a deadline belongs to the module that knows its reason; here they only meet.
Rule 2: a deadline that has passed is one that `fire` can act upon. What waits for something else
        first, such as a unit that is out, has no deadline until then.
Rule 3: one wake-up is asked for at a time. One that comes too early finds nothing due and asks
        again, so a deadline that moves on with every append costs nothing.
"""

from session.effects import Effect, WakeAt
from session.pump import continuation_deadline, continue_answer
from session.state import SessionState


def fire(state: SessionState, now: float) -> list[Effect]:
    """Do what is due."""
    state.wake_at_s = None
    return continue_answer(state, now)


def wake_up(state: SessionState, now: float) -> list[Effect]:
    """Ask for the next wake-up, unless one that is early enough has been asked for."""
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
    deadlines = (continuation_deadline(state),)
    return min((due for due in deadlines if due is not None), default=None)
