"""What a client of a stream without turns shall learn; the rest is in `events`."""

from dataclasses import dataclass
from typing import Final

from session.stream_stimuli import ContextUse

FRAME_MS: Final = 200
"""The step in which a session's input is counted for its client."""


@dataclass(frozen=True, slots=True)
class InputCounted:
    """So much input has come in: another frame of it is full. Only where the settings ask for it.

    It precedes whatever the input of that frame leads to.
    """

    input_ms: int
    """A whole number of frames, since the session began."""


@dataclass(frozen=True, slots=True)
class ContextAccepted:
    """The model has been told a text, or will be with the next that it hears."""

    use: ContextUse
    client_event_id: str | None = None


@dataclass(frozen=True, slots=True)
class InputMuteChanged:
    """Answer to a change of the input's mute."""

    is_muted: bool
    client_event_id: str | None = None
