"""A voice's recording, as the two networks in front of Token2Wav describe it."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False)
class VoicePrompt:
    """What a voice is prepared from."""

    codes: tuple[int, ...]
    """25 a second."""
    mel: npt.NDArray[np.float32]
    """[2 * codes, bands] at 24 kHz, a frame each 480 samples."""
    speaker: npt.NDArray[np.float32]
    """[192]"""


@dataclass(frozen=True, slots=True)
class NamedPrompt:
    """A prompt, and the name under which what is prepared of it is kept."""

    key: str
    """Equal for equal recordings, and for no others."""
    prompt: VoicePrompt


class Prompts(Protocol):
    """Where voices come from (`stages.minicpmo.voice_prompts`)."""

    @property
    def own(self) -> NamedPrompt:
        """The voice of sessions that bring none."""
        ...

    async def learned(self, sample: bytes) -> NamedPrompt:
        """Return the voice of a recording, PCM at `VOICE_RATE_HZ`.

        Raises UnsupportedOption for one that can not be used, or where no networks are there that
        could learn it.
        """
        ...
