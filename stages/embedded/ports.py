"""What the hearing and answering half needs of its networks; tests bring their own."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from stages.embedded.conversation import Conversation
from stages.vad.silero import VadState, WindowScore


@dataclass(frozen=True, slots=True)
class Prompt:
    """Tokens to go on from; `shared` is the part that is the same for many sessions."""

    shared: tuple[str, ...]
    own: tuple[str, ...]

    @property
    def n_tokens(self) -> int:
        """Its length."""
        return len(self.shared) + len(self.own)


@dataclass(frozen=True, slots=True)
class Writing:
    """How to write: no temperature means always the likeliest token."""

    max_tokens: int
    temperature: float | None = None
    memory: str = ""
    """Whose conversation it is: a model may keep its state under this name from one answer to the
    next, until it is told to forget it."""


class VoiceActivity(Protocol):
    """Tells speech from other sound."""

    def score(self, state: VadState, pcm: bytes) -> tuple[WindowScore, ...]:
        """Continue `state` with 16 kHz PCM16 and score every window that this completes."""
        ...


class Recogniser(Protocol):
    """Turns speech into text."""

    def transcribe(self, audio: npt.NDArray[np.float32]) -> str:
        """Return the words in samples of -1..1 at 16 kHz, at most 30 s of them."""
        ...


class TextModel(Protocol):
    """Writes text that goes on from a conversation."""

    def prompt(self, instructions: str, conversation: Conversation, history_tokens: int) -> Prompt:
        """Build the prompt for the answer to the conversation's last entry."""
        ...

    def write(self, prompt: Prompt, writing: Writing, on_text: Callable[[str], bool]) -> bool:
        """Give `on_text` each new piece of the answer; stop when it returns True.

        Returns whether `max_tokens` came before the end of the answer.
        """
        ...

    def first_tokens(self, sentences: Iterable[str], limit: int) -> list[str]:
        """Return the sentences up to `limit` tokens; the last may be cut short."""
        ...

    def forget(self, memory: str) -> None:
        """Let go of what is kept under that name, once nothing writes under it; may block."""
        ...

    async def died(self) -> str:
        """Return why it can write nothing any more, once that is so; never otherwise."""
        ...


@dataclass(frozen=True, slots=True)
class Networks:
    """All three, shared by all sessions."""

    vad: VoiceActivity
    whisper: Recogniser
    model: TextModel
