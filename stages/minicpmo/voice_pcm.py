"""The samples of a voice: of its recording, at the rate it comes in and at the encoders', and what
it says.
"""

from typing import Final

import numpy as np
import soxr

from session.unit import INPUT_RATE_HZ, SAMPLE_BYTES, VOICE_RATE_HZ
from stages.log_mel import Floats

_FULL_SCALE: Final = np.float32(32_768)
_LARGEST: Final = 32_767.0
"""What full scale is in sound that is made, as published."""


def voice_floats(pcm: bytes) -> Floats:
    """Return 16-bit PCM as float32 in -1..1; half a sample at the end is lost."""
    whole = len(pcm) // SAMPLE_BYTES * SAMPLE_BYTES
    return np.frombuffer(pcm[:whole], "<i2").astype(np.float32) / _FULL_SCALE


def voice_pcm(audio: Floats) -> bytes:
    """Return samples as 16-bit PCM, limited to full scale."""
    scaled = np.rint(audio * _FULL_SCALE)
    pcm: np.ndarray = np.clip(scaled, -_FULL_SCALE, _FULL_SCALE - 1).astype("<i2")
    return pcm.tobytes()


def to_pcm(wave: Floats) -> bytes:
    """Return 16-bit little-endian samples, each cut towards 0, as published."""
    return (np.clip(wave, -1.0, 1.0) * np.float32(_LARGEST)).astype("<i2").tobytes()


def voice_at_16k(audio: Floats) -> Floats:
    """Return a recording at VOICE_RATE_HZ, samples in -1..1, as 16 kHz in -1..1."""
    resampled: Floats = soxr.resample(audio, VOICE_RATE_HZ, INPUT_RATE_HZ)
    # A filter overshoots where the recording touches full scale.
    return np.clip(resampled, -1.0, 1.0)


def used_of_recording(pcm: bytes, seconds: float) -> bytes:
    """Return the first seconds of a recording at VOICE_RATE_HZ, which are all that counts."""
    return pcm[: round(seconds * VOICE_RATE_HZ) * SAMPLE_BYTES]
