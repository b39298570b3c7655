"""A speech scorer that goes by loudness."""

from serve_app.audio.audio_codec import level
from session.stimuli import SpeechScore
from session.unit import SAMPLE_BYTES

WINDOW_SAMPLES = 512
LOUD = 0.05


class EnergyScorer:
    """Implements `serve_app.audio.speech_scorer.SpeechScorer`: loud windows are speech."""

    def __init__(self) -> None:
        self._carry = b""
        self._end_sample = 0

    async def score(self, pcm: bytes) -> tuple[SpeechScore, ...]:
        """Return a score for each whole window."""
        stream, size = self._carry + pcm, WINDOW_SAMPLES * SAMPLE_BYTES
        scores = []
        while len(stream) >= size:
            window, stream = stream[:size], stream[size:]
            self._end_sample += WINDOW_SAMPLES
            scores.append(SpeechScore(float(level(window) > LOUD), self._end_sample))
        self._carry = stream
        return tuple(scores)

    def skip(self, samples: int) -> None:
        """Let time pass."""
        self._end_sample += len(self._carry) // SAMPLE_BYTES + samples
        self._carry = b""


async def open_energy_scorer() -> EnergyScorer:
    """Return a new session's scorer."""
    return EnergyScorer()
