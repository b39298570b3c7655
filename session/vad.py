"""From window probabilities to onsets and offsets of speech: the hysteresis of server_vad.

Rule 1: every onset is followed by exactly one offset before the next onset.
Rule 2: an onset needs `min_speech_duration_ms` of speech without a clear pause; its time is the
        first speech window less the prefix padding.
        During an answer that it would interrupt, one window must also be as certain as
        `interrupt_confidence` says.
Rule 3: once speaking, windows above `threshold - 0.15` still count as speech.
Rule 4: an utterance ends where its end was found: the silence that ended it is part of it. The
        padding of the next one does not reach back over that.
"""

from dataclasses import dataclass
from typing import Final

from session.config import TurnDetection
from session.stimuli import SpeechScore
from session.unit import INPUT_RATE_HZ, samples_to_ms

HYSTERESIS: Final = 0.15


@dataclass(frozen=True, slots=True)
class Onset:
    """The user began to speak; prefix padding is included."""

    start_sample: int
    """Samples since the session began, at 16 kHz."""

    @property
    def audio_start_ms(self) -> int:
        """The same place in milliseconds."""
        return samples_to_ms(self.start_sample, INPUT_RATE_HZ)


@dataclass(frozen=True, slots=True)
class Offset:
    """The user stopped: the last speech ended at `speech_end_sample`."""

    speech_end_sample: int
    found_at_sample: int
    """Where the silence was long enough to tell: there the utterance's audio ends."""
    speech_samples: int
    """From the first speech to the last, without padding and silence."""

    @property
    def audio_end_ms(self) -> int:
        """Where speech ended, in milliseconds."""
        return samples_to_ms(self.speech_end_sample, INPUT_RATE_HZ)


@dataclass(slots=True)
class SpeechDetector:
    """State of one session's detector."""

    settings: TurnDetection
    is_speaking: bool = False
    _candidate_start: int | None = None
    _speech_samples: int = 0
    _certainty: float = 0.0
    """Of the window in the candidate that is most like speech."""
    _last_speech_end: int = 0
    _last_end: int | None = None
    """Where the last window ended; None before the first, which may come late in a session."""
    _speech_start: int = 0
    _earlier_end: int = 0
    """Where the audio of the last utterance ended."""

    @property
    def needed_from_sample(self) -> int:
        """The earliest sample that the next utterance can begin with."""
        begins = self._candidate_start
        return self._padded(self._last_end or 0 if begins is None else begins)

    def feed(self, score: SpeechScore, *, over_answer: bool = False) -> Onset | Offset | None:
        """Take the next window; return the edge it completes, if any.

        `over_answer` says that the assistant is answering meanwhile.
        """
        start = score.end_sample if self._last_end is None else self._last_end
        window = score.end_sample - start
        self._last_end = score.end_sample
        if self.is_speaking:
            return self._feed_speaking(score)
        if score.probability >= self.settings.threshold:
            self._feed_candidate(start, window, score)
            return self._onset(over_answer=over_answer)
        # One soft window inside a word does not undo the candidate; a second one does.
        if self._candidate_start is not None and start > self._last_speech_end:
            self._candidate_start = None
        return None

    def end_now(self) -> Offset | None:
        """Close an open onset because the session or its detection ends."""
        if not self.is_speaking:
            return None
        return self._end(self._last_end or 0)

    def skip(self, end_sample: int) -> None:
        """Pass over audio that was not taken; it breaks what had only just begun."""
        self._last_end = end_sample
        if not self.is_speaking:
            self._candidate_start = None

    def _feed_candidate(self, start: int, window: int, score: SpeechScore) -> None:
        if self._candidate_start is None:
            self._candidate_start, self._speech_samples, self._certainty = start, 0, 0.0
        self._speech_samples += window
        self._certainty = max(self._certainty, score.probability)
        self._last_speech_end = score.end_sample

    def _onset(self, *, over_answer: bool) -> Onset | None:
        settings, spoken_ms = self.settings, samples_to_ms(self._speech_samples, INPUT_RATE_HZ)
        interrupts = over_answer and settings.interrupt_response
        if spoken_ms < settings.min_speech_duration_ms or self._candidate_start is None:
            return None
        if interrupts and self._certainty < settings.interrupt_confidence:
            return None
        self.is_speaking = True
        self._speech_start = self._candidate_start
        return Onset(self._padded(self._speech_start))

    def _padded(self, start: int) -> int:
        padding = self.settings.prefix_padding_ms * INPUT_RATE_HZ // 1000
        return max(self._earlier_end, start - padding)

    def _feed_speaking(self, score: SpeechScore) -> Offset | None:
        if score.probability >= self.settings.threshold - HYSTERESIS:
            self._last_speech_end = score.end_sample
            return None
        silence = score.end_sample - self._last_speech_end
        if samples_to_ms(silence, INPUT_RATE_HZ) < self.settings.silence_duration_ms:
            return None
        return self._end(self._last_speech_end)

    def _end(self, speech_end: int) -> Offset:
        self.is_speaking = False
        self._candidate_start = None
        self._earlier_end = self._last_end or 0
        return Offset(speech_end, self._earlier_end, max(0, speech_end - self._speech_start))
