"""Voice activity of one session's audio, window by window.

One model serves the whole process; what a session has is its state and its place in time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from session.stimuli import SpeechScore
from session.unit import SAMPLE_BYTES
from stages.vad.silero import SileroVad


class SpeechScorer(Protocol):
    """Scores one session's 16 kHz PCM; calls come in the order of the audio."""

    def score(self, pcm: bytes) -> tuple[SpeechScore, ...]:
        """Return the windows that `pcm` completes."""
        ...

    def skip(self, samples: int) -> None:
        """Let time pass without scoring; what is heard next follows on nothing."""
        ...


OpenScorer = Callable[[], Awaitable[SpeechScorer]]
"""Makes the scorer of a session that needs one."""


class SileroScorer:
    """A session's ear on the process's Silero model."""

    def __init__(self, vad: SileroVad) -> None:
        self._vad = vad
        self._state = vad.new_state()
        self._began_at = 0
        """Session sample at which the state's own count began."""
        self._samples = 0

    def score(self, pcm: bytes) -> tuple[SpeechScore, ...]:
        """Return the windows that `pcm` completes."""
        self._samples += len(pcm) // SAMPLE_BYTES
        return tuple(
            SpeechScore(window.probability, self._began_at + window.end_sample)
            for window in self._vad.score(self._state, pcm)
        )

    def skip(self, samples: int) -> None:
        """Let time pass without scoring."""
        if samples:
            self._samples += samples
            self._state = self._vad.new_state()
            self._began_at = self._samples


class SileroScorers:
    """Makes scorers; loads the model once, when the first session needs it."""

    def __init__(self, load: Callable[[], SileroVad] = SileroVad.load) -> None:
        self._load = load
        self._vad: SileroVad | None = None
        self._loading = asyncio.Lock()

    async def open(self) -> SpeechScorer:
        """Return a new session's scorer."""
        async with self._loading:
            if self._vad is None:
                self._vad = await asyncio.to_thread(self._load)
        return SileroScorer(self._vad)
