"""A voice's recording, as the two networks in front of Token2Wav describe it."""

from dataclasses import dataclass

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
