"""What a client of a stream without turns can say besides audio; the rest is in `stimuli`."""

import enum
from dataclasses import dataclass


class ContextUse(enum.Enum):
    """What the model shall do with a text that it is told during the session."""

    INSTRUCTIONS = "instructions"
    """Follow it from now on."""
    THINKING = "thinking"
    """Know it, and say nothing because of it."""
    COMMENTARY = "commentary"
    """Tell the user of it, once nobody is speaking."""


@dataclass(frozen=True, slots=True)
class ContextAppended:
    """Something that the model shall know, and that nobody has said in the conversation."""

    use: ContextUse
    text: str
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class InputMuteSet:
    """From here on the audio that comes is silence, or is heard again.

    Whoever reads the client's audio makes it silent; the session only says that it has been done.
    """

    is_muted: bool
    event_id: str | None = None
