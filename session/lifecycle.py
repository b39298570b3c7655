"""The two state machines of a session, as tables.

Rule 1: a state moves only through `move_life` and `move_turn`, and only as the tables say; any
        other move is our own fault and raises LocalProtocolError, changing nothing.
Rule 2: a session is born OPENING, holds stage resources until RELEASED, and has exactly one
        terminal event, made by the move out of CLOSING. Where the stages did not confirm the
        release at once, the client is told and the session goes on HOLDING its slot until they do.
Rule 3: an open that is abandoned is not closed before the stages have answered it: only then is
        it known what must be released.
Rule 4: the turn says who is acting. In a full-duplex session the user may start at any time, so
        every user trigger is legal in every turn state.
"""

import enum
from typing import Final

from session.errors import LocalProtocolError


class Life(enum.Enum):
    """Where a session is between its first event and its last."""

    OPENING = "opening"
    ABANDONED = "abandoned"
    OPEN = "open"
    CLOSING = "closing"
    HOLDING = "holding"
    CLOSED = "closed"


class LifeTrigger(enum.Enum):
    """What moves a session's life."""

    OPENED = "opened"
    OPEN_FAILED = "open_failed"
    CLOSE_ASKED = "close_asked"
    RELEASED = "released"
    RELEASE_FAILED = "release_failed"


LIFE_TABLE: Final[dict[tuple[Life, LifeTrigger], Life]] = {
    (Life.OPENING, LifeTrigger.OPENED): Life.OPEN,
    (Life.OPENING, LifeTrigger.OPEN_FAILED): Life.CLOSED,
    (Life.OPENING, LifeTrigger.CLOSE_ASKED): Life.ABANDONED,
    (Life.ABANDONED, LifeTrigger.OPENED): Life.CLOSING,
    (Life.ABANDONED, LifeTrigger.OPEN_FAILED): Life.CLOSED,
    (Life.ABANDONED, LifeTrigger.CLOSE_ASKED): Life.ABANDONED,
    (Life.OPEN, LifeTrigger.CLOSE_ASKED): Life.CLOSING,
    (Life.CLOSING, LifeTrigger.CLOSE_ASKED): Life.CLOSING,
    (Life.CLOSING, LifeTrigger.RELEASED): Life.CLOSED,
    (Life.CLOSING, LifeTrigger.RELEASE_FAILED): Life.HOLDING,
    (Life.HOLDING, LifeTrigger.CLOSE_ASKED): Life.HOLDING,
    (Life.HOLDING, LifeTrigger.RELEASE_FAILED): Life.HOLDING,
    (Life.HOLDING, LifeTrigger.RELEASED): Life.CLOSED,
    (Life.CLOSED, LifeTrigger.CLOSE_ASKED): Life.CLOSED,
}


class TurnState(enum.Enum):
    """Who is acting now, as shown to clients."""

    IDLE = "idle"
    USER_SPEAKING = "user_speaking"
    USER_COMMITTED = "user_committed"
    GENERATING = "assistant_generating"
    PLAYING = "assistant_playing"
    BARGE_IN = "barge_in"


class TurnTrigger(enum.Enum):
    """What moves the turn."""

    USER_STARTED = "user_started"
    USER_STOPPED = "user_stopped"
    USER_COMMITTED = "user_committed"
    ANSWER_STARTED = "answer_started"
    ANSWER_ENDED = "answer_ended"
    ANSWER_HEARD = "answer_heard"
    INTERRUPTED = "interrupted"


_SAME: Final = None
_TURN_ROWS: Final[dict[TurnTrigger, dict[TurnState, TurnState | None]]] = {
    # While the assistant acts, user speech is overlap: the turn stays with the assistant.
    TurnTrigger.USER_STARTED: {
        TurnState.IDLE: TurnState.USER_SPEAKING,
        TurnState.USER_SPEAKING: _SAME,
        TurnState.USER_COMMITTED: TurnState.USER_SPEAKING,
        TurnState.GENERATING: _SAME,
        TurnState.PLAYING: _SAME,
        TurnState.BARGE_IN: TurnState.USER_SPEAKING,
    },
    TurnTrigger.USER_STOPPED: {
        TurnState.IDLE: _SAME,
        TurnState.USER_SPEAKING: TurnState.IDLE,
        TurnState.USER_COMMITTED: _SAME,
        TurnState.GENERATING: _SAME,
        TurnState.PLAYING: _SAME,
        TurnState.BARGE_IN: TurnState.IDLE,
    },
    TurnTrigger.USER_COMMITTED: {
        TurnState.IDLE: TurnState.USER_COMMITTED,
        TurnState.USER_SPEAKING: TurnState.USER_COMMITTED,
        TurnState.USER_COMMITTED: _SAME,
        TurnState.GENERATING: _SAME,
        TurnState.PLAYING: TurnState.USER_COMMITTED,
        TurnState.BARGE_IN: TurnState.USER_COMMITTED,
    },
    TurnTrigger.ANSWER_STARTED: dict.fromkeys(TurnState, TurnState.GENERATING),
    TurnTrigger.ANSWER_ENDED: {
        TurnState.GENERATING: TurnState.PLAYING,
        TurnState.PLAYING: _SAME,
        TurnState.IDLE: _SAME,
        TurnState.USER_SPEAKING: _SAME,
        TurnState.USER_COMMITTED: _SAME,
        TurnState.BARGE_IN: _SAME,
    },
    TurnTrigger.ANSWER_HEARD: {
        TurnState.PLAYING: TurnState.IDLE,
        TurnState.IDLE: _SAME,
        TurnState.USER_SPEAKING: _SAME,
        TurnState.USER_COMMITTED: _SAME,
        TurnState.GENERATING: _SAME,
        TurnState.BARGE_IN: _SAME,
    },
    TurnTrigger.INTERRUPTED: dict.fromkeys(TurnState, TurnState.BARGE_IN),
}
TURN_TABLE: Final[dict[tuple[TurnState, TurnTrigger], TurnState]] = {
    (state, trigger): state if target is _SAME else target
    for trigger, row in _TURN_ROWS.items()
    for state, target in row.items()
}


def move_life(state: Life, trigger: LifeTrigger) -> Life:
    """Return the next life state; raise LocalProtocolError for an illegal move."""
    try:
        return LIFE_TABLE[state, trigger]
    except KeyError:
        raise LocalProtocolError(f"illegal: {trigger.value} while {state.value}") from None


def move_turn(state: TurnState, trigger: TurnTrigger) -> TurnState:
    """Return the next turn state; there is one for every trigger (Rule 4)."""
    return TURN_TABLE[state, trigger]
