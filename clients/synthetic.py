"""Speech-like audio that is made, not recorded: deterministic, for load when no file is given.

Syllables of voiced harmonics under moving formants, with a burst of noise at each start. Voice
activity detectors take it for speech; nobody understands it.
"""

from typing import Final

import numpy as np

from clients.levels import SpeechSpan
from clients.wav import Recording, Samples, to_pcm16

RATE_HZ: Final = 16_000
LEAD_S: Final = 0.6
SPEECH_S: Final = 2.0
PAUSE_S: Final = 3.4
_LOUDNESS: Final = 0.5
_HARMONICS: Final = 38
_BANDWIDTHS_HZ: Final = (80.0, 100.0, 140.0)
_STRENGTHS: Final = (1.0, 0.6, 0.25)
_VOWELS_HZ: Final = (
    (730.0, 1090.0, 2440.0),
    (270.0, 2290.0, 3010.0),
    (300.0, 870.0, 2240.0),
    (530.0, 1840.0, 2480.0),
    (570.0, 840.0, 2410.0),
    (660.0, 1720.0, 2410.0),
)


def bursts() -> tuple[Recording, tuple[SpeechSpan, ...]]:
    """Return one round of silence, speech and pause, made to be repeated, and its speech."""
    quiet, pause = np.zeros(int(LEAD_S * RATE_HZ)), np.zeros(int(PAUSE_S * RATE_HZ))
    samples = np.concatenate([quiet, speech_like(SPEECH_S), pause])
    start_ms, length_ms = int(LEAD_S * 1000), int(SPEECH_S * 1000)
    return Recording(to_pcm16(samples), RATE_HZ), (SpeechSpan(start_ms, start_ms + length_ms),)


def speech_like(seconds: float, *, seed: int = 7) -> Samples:
    """Return `seconds` of speech-like samples at `RATE_HZ`; the same for the same seed."""
    random = np.random.default_rng(seed)
    total = int(seconds * RATE_HZ)
    spoken: list[Samples] = []
    position = 0
    while position < total:
        length = min(int(RATE_HZ * random.uniform(0.13, 0.24)), total - position)
        pitch_hz = (135.0 - 30.0 * position / total) * random.uniform(0.92, 1.08)
        vowel = _VOWELS_HZ[random.integers(len(_VOWELS_HZ))]
        spoken.append(_syllable(length, pitch_hz, vowel, random))
        position += length
    samples = np.concatenate(spoken)
    return np.asarray(_LOUDNESS * samples / np.abs(samples).max(), dtype=np.float64)


def _syllable(
    length: int, pitch_hz: float, vowel: tuple[float, ...], random: np.random.Generator
) -> Samples:
    at = np.arange(length)
    phase = 2 * np.pi * pitch_hz * at / RATE_HZ
    voiced = np.zeros(length)
    for harmonic in range(1, _HARMONICS):
        frequency = harmonic * pitch_hz
        if frequency > RATE_HZ / 2 - 200:
            break
        strength = sum(
            gain / (1 + ((frequency - centre) / width) ** 2)
            for gain, centre, width in zip(_STRENGTHS, vowel, _BANDWIDTHS_HZ, strict=True)
        )
        voiced += strength * harmonic**-0.3 * np.sin(harmonic * phase)
    envelope = np.sin(np.pi * at / length) ** 0.6
    burst = random.standard_normal(length) * np.exp(-at / (0.02 * RATE_HZ)) * 0.25
    return np.asarray(voiced * envelope + burst, dtype=np.float64)
