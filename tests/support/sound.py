"""Sound for tests without models: loudness stands for speech, and a level names its words."""

import threading
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from session.unit import INPUT_RATE_HZ, SAMPLE_BYTES
from stages.vad.silero import WINDOW_SAMPLES, VadState, WindowScore

_WINDOW_BYTES = WINDOW_SAMPLES * SAMPLE_BYTES


def tone(level: int, ms: int) -> bytes:
    """Return PCM16 of a square wave, `ms` long; level 0 is silence."""
    samples = np.full(ms * INPUT_RATE_HZ // 1000, level, "<i2")
    samples[1::2] *= -1
    return samples.tobytes()


class LoudnessVad:
    """Takes every window with a loud sample for speech."""

    def score(self, state: VadState, pcm: bytes) -> tuple[WindowScore, ...]:
        """Score each whole window."""
        stream = state.carry + pcm
        scores: list[WindowScore] = []
        while len(stream) >= _WINDOW_BYTES:
            window, stream = stream[:_WINDOW_BYTES], stream[_WINDOW_BYTES:]
            state.end_sample += WINDOW_SAMPLES
            loudest = int(np.abs(np.frombuffer(window, "<i2").astype(np.int32)).max())
            scores.append(WindowScore(float(loudest > 1000), state.end_sample))
        state.carry = stream
        return tuple(scores)


class LevelRecogniser:
    """Hears, in the order of the sound, the words that the levels stand for."""

    def __init__(self, words: Mapping[int, str]) -> None:
        self.words = dict(words)
        self.calls = 0
        self.may_go_on = threading.Event()
        """Cleared, it holds whoever listens."""
        self.may_go_on.set()
        self.is_listening = threading.Event()

    def transcribe(self, audio: npt.NDArray[np.float32]) -> str:
        """Return the words of all known levels in `audio`."""
        self.calls += 1
        self.is_listening.set()
        assert self.may_go_on.wait(10), "nobody let the recogniser go on"
        levels = np.rint(np.abs(audio) * 32768).astype(int)
        firsts = {
            level: int(np.argmax(levels == level))
            for level in self.words
            if np.any(levels == level)
        }
        return " ".join(self.words[level] for level in sorted(firsts, key=firsts.__getitem__))
