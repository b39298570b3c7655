"""How loud audio is, and where in a recording somebody speaks."""

import math
from dataclasses import dataclass

import numpy as np

from clients.wav import Recording, from_pcm16

SILENCE_DBFS = -96.0
_FRAME_MS = 10
_QUIETEST_SPEECH = 0.003
"""Root mean square below which nothing counts as speech."""
_RELATIVE_TO_LOUDEST = 0.06


@dataclass(frozen=True, slots=True)
class SpeechSpan:
    """A stretch of speech, in milliseconds from the start of the recording."""

    start_ms: int
    end_ms: int


def dbfs(pcm: bytes) -> float:
    """Level of 16-bit samples in dB relative to full scale; `SILENCE_DBFS` at least."""
    samples = from_pcm16(pcm)
    power = float(np.mean(samples**2)) if len(samples) else 0.0
    return max(SILENCE_DBFS, 10 * math.log10(power)) if power > 0 else SILENCE_DBFS


def speech_spans(recording: Recording, *, pause_ms: int = 400) -> tuple[SpeechSpan, ...]:
    """Find speech by level; pauses shorter than `pause_ms` do not end a span."""
    frame = recording.rate_hz * _FRAME_MS // 1000
    samples = from_pcm16(recording.pcm)
    frames = samples[: len(samples) - len(samples) % frame].reshape(-1, frame)
    if not len(frames):
        return ()
    levels = np.sqrt((frames**2).mean(axis=1))
    loud = np.flatnonzero(levels > max(_QUIETEST_SPEECH, _RELATIVE_TO_LOUDEST * levels.max()))
    if not len(loud):
        return ()
    breaks = np.flatnonzero(np.diff(loud) * _FRAME_MS > pause_ms)
    starts = [int(loud[0]), *(int(loud[i + 1]) for i in breaks)]
    ends = [*(int(loud[i]) for i in breaks), int(loud[-1])]
    return tuple(
        SpeechSpan(start * _FRAME_MS, (end + 1) * _FRAME_MS)
        for start, end in zip(starts, ends, strict=True)
    )
