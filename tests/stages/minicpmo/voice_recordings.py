"""Made-up recordings of voices."""

import numpy as np

from session.unit import VOICE_RATE_HZ


def recording(number: int, seconds: float) -> bytes:
    """Return PCM at VOICE_RATE_HZ of a voice with the pitch and timbre of its number."""
    times = np.arange(round(seconds * VOICE_RATE_HZ)) / VOICE_RATE_HZ
    pitch_hz = 90 + 40 * number + 15 * np.sin(2 * np.pi * 1.7 * times)
    phase = 2 * np.pi * np.cumsum(pitch_hz) / VOICE_RATE_HZ
    parts = [np.sin(part * phase) / part ** (0.5 + 0.3 * number) for part in range(1, 20)]
    loudness = 0.55 + 0.45 * np.sin(2 * np.pi * 2.3 * times)
    wave = np.sum(parts, axis=0) * loudness
    pcm: np.ndarray = (wave / np.abs(wave).max() * 20_000).astype("<i2")
    return pcm.tobytes()
