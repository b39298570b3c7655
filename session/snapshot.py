"""The session, and how much of an answer was heard, as a client may see them."""

from dataclasses import dataclass

from session.config import SessionConfig
from session.fence import Fence
from session.ids import ResponseId


@dataclass(frozen=True, slots=True)
class Playback:
    """Cursors of one response in whole milliseconds; committed <= played <= sent <= generated."""

    generated_ms: int = 0
    sent_ms: int = 0
    played_ms: int = 0
    committed_ms: int = 0


@dataclass(frozen=True, slots=True)
class SessionSnapshot:
    """The session as a client may see it."""

    fence: Fence
    state: str
    turn_state: str
    config: SessionConfig
    playback: Playback
    active_response_id: ResponseId | None = None
    config_generation: int = 0
