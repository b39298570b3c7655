"""From window probabilities to onsets and offsets of speech: the hysteresis of server_vad.

Rule 1: every onset is followed by exactly one offset before the next onset.
Rule 2: an onset needs `min_speech_duration_ms` of speech without a clear pause; its time is the
        first speech window less the prefix padding.
Rule 3: once speaking, windows above `threshold - 0.15` still count as speech.
"""

from dataclasses import dataclass
from typing import Final

from session.config import TurnDetection
from session.stimuli import SpeechScore
from session.unit import INPUT_RATE_HZ, samples_to_ms

HYSTERESIS: Final = 0.15


@dataclass(frozen=True, slots=True)
class Onset:
    """The user began to speak at `audio_start_ms` (prefix padding included)."""

    audio_start_ms: int


@dataclass(frozen=True, slots=True)
class Offset:
    """The user stopped; speech ended at `audio_end_ms`."""

    audio_end_ms: int


@dataclass(slots=True)
class SpeechDetector:
    """State of one session's detector."""

    settings: TurnDetection
    is_speaking: bool = False
    _candidate_start: int | None = None
    _speech_samples: int = 0
    _last_speech_end: int = 0
    _last_end: int | None = None
    """Where the last window ended; None before the first, which may come late in a session."""

    def feed(self, score: SpeechScore) -> Onset | Offset | None:
        """Take the next window; return the edge it completes, if any."""
        start = score.end_sample if self._last_end is None else self._last_end
        window = score.end_sample - start
        self._last_end = score.end_sample
        if self.is_speaking:
            return self._feed_speaking(score)
        if score.probability >= self.settings.threshold:
            return self._feed_candidate(start, window, score.end_sample)
        # One soft window inside a word does not undo the candidate; a second one does.
        if self._candidate_start is not None and start > self._last_speech_end:
            self._candidate_start = None
        return None

    def end_now(self) -> Offset | None:
        """Close an open onset because the session or its detection ends."""
        if not self.is_speaking:
            return None
        self.is_speaking = False
        self._candidate_start = None
        return Offset(samples_to_ms(self._last_end or 0, INPUT_RATE_HZ))

    def _feed_candidate(self, start: int, window: int, end: int) -> Onset | None:
        if self._candidate_start is None:
            self._candidate_start, self._speech_samples = start, 0
        self._speech_samples += window
        self._last_speech_end = end
        if (
            samples_to_ms(self._speech_samples, INPUT_RATE_HZ)
            < self.settings.min_speech_duration_ms
        ):
            return None
        self.is_speaking = True
        onset_ms = samples_to_ms(self._candidate_start, INPUT_RATE_HZ)
        return Onset(max(0, onset_ms - self.settings.prefix_padding_ms))

    def _feed_speaking(self, score: SpeechScore) -> Offset | None:
        if score.probability >= self.settings.threshold - HYSTERESIS:
            self._last_speech_end = score.end_sample
            return None
        silence = score.end_sample - self._last_speech_end
        if samples_to_ms(silence, INPUT_RATE_HZ) < self.settings.silence_duration_ms:
            return None
        self.is_speaking = False
        self._candidate_start = None
        return Offset(samples_to_ms(self._last_speech_end, INPUT_RATE_HZ))
