"""Finds utterances in a session's audio.

Rule 1: an utterance begins `pre_roll_ms` before its first speech window and is complete after
        `silence_ms` without speech, or when the caller says that the user is done.
Rule 2: less than `min_speech_ms` of speech is noise, and is forgotten.
Rule 3: a very long utterance is handed out in pieces, cut where it is quietest, so that neither
        memory nor the wait at its end grows with it.
Rule 4: an ear is advanced on a copy; the caller keeps the copy when the unit counts.
"""

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from session.unit import INPUT_RATE_HZ, SAMPLE_BYTES
from stages.embedded.ports import VoiceActivity
from stages.vad.silero import WINDOW_SAMPLES, VadState, WindowScore

LONGEST_PIECE_S: Final = 28

_HYSTERESIS: Final = 0.15
"""Once speech has begun, windows this much below the threshold still belong to it."""
_TAIL_SAMPLES: Final = INPUT_RATE_HZ // 5
"""What is kept after the last speech window: final consonants are soft."""
_CUT_SEARCH_S: Final = 8
_CUT_FRAME: Final = INPUT_RATE_HZ // 10


@dataclass(frozen=True, slots=True)
class EarSettings:
    """When sound is speech, and when an utterance is over."""

    threshold: float
    silence_ms: int
    min_speech_ms: int
    pre_roll_ms: int


@dataclass(frozen=True, slots=True)
class Utterance:
    """16 kHz PCM16 of one utterance, or of the piece of a long one that ends here."""

    pcm: bytes
    is_complete: bool


@dataclass(slots=True)
class Ear:
    """One session's ear; not for two threads at once."""

    vad: VoiceActivity
    settings: EarSettings
    voice: VadState = field(default_factory=VadState)
    _pcm: bytes = b""
    """Audio from `_base` on: all of the open utterance, or just enough for its pre-roll."""
    _base: int = 0
    _begin: int | None = None
    """First speech window of the open utterance; or where its next piece begins."""
    _speech_end: int = 0
    _speech_windows: int = 0

    def copy(self) -> "Ear":
        """Return an ear that can be advanced without changing this one."""
        return replace(self, voice=replace(self.voice))

    @property
    def is_hearing_speech(self) -> bool:
        """Whether an utterance is open."""
        return self._begin is not None

    @property
    def held_bytes(self) -> int:
        """Audio kept for what may come of it."""
        return len(self._pcm)

    def hear(self, pcm: bytes) -> list[Utterance]:
        """Take the next audio; return what it completes."""
        found: list[Utterance] = []
        # Bit by bit, so that a long committed item is cut up like a stream of units.
        step = INPUT_RATE_HZ * SAMPLE_BYTES
        for at in range(0, len(pcm), step):
            bit = pcm[at : at + step]
            self._pcm += bit
            for score in self.vad.score(self.voice, bit):
                found += self._take(score)
            found += self._cut_if_long()
            self._forget_silence()
        return found

    def end(self, *, min_silence_ms: int = 0) -> list[Utterance]:
        """The user is done: complete the open utterance if it has been quiet that long."""
        silence = self.voice.end_sample - self._speech_end
        if self._begin is None or silence < min_silence_ms * INPUT_RATE_HZ // 1000:
            return []
        return self._complete()

    def _take(self, score: WindowScore) -> list[Utterance]:
        floor = self.settings.threshold - (_HYSTERESIS if self.is_hearing_speech else 0.0)
        if score.probability >= floor:
            if self._begin is None:
                pre_roll = self.settings.pre_roll_ms * INPUT_RATE_HZ // 1000
                self._begin = max(self._base, score.end_sample - WINDOW_SAMPLES - pre_roll)
            self._speech_end = score.end_sample
            self._speech_windows += 1
            return []
        silence = score.end_sample - self._speech_end
        if self._begin is None or silence < self.settings.silence_ms * INPUT_RATE_HZ // 1000:
            return []
        return self._complete()

    def _complete(self) -> list[Utterance]:
        begin, self._begin = self._begin or 0, None
        speech_ms = self._speech_windows * WINDOW_SAMPLES * 1000 // INPUT_RATE_HZ
        self._speech_windows = 0
        if speech_ms < self.settings.min_speech_ms:
            return []
        return [Utterance(self._between(begin, self._speech_end + _TAIL_SAMPLES), True)]

    def _cut_if_long(self) -> list[Utterance]:
        end = self._base + len(self._pcm) // SAMPLE_BYTES
        if self._begin is None or end - self._begin < LONGEST_PIECE_S * INPUT_RATE_HZ:
            return []
        cut = self._quietest(end - _CUT_SEARCH_S * INPUT_RATE_HZ, end)
        piece = Utterance(self._between(self._begin, cut), False)
        self._begin = cut
        return [piece]

    def _quietest(self, begin: int, end: int) -> int:
        """Return the middle of the quietest tenth of a second."""
        samples = np.frombuffer(self._between(begin, end), "<i2").astype(np.float32)
        frames = samples[: len(samples) // _CUT_FRAME * _CUT_FRAME].reshape(-1, _CUT_FRAME)
        quietest = int(np.argmin(np.square(frames).sum(axis=1)))
        return begin + quietest * _CUT_FRAME + _CUT_FRAME // 2

    def _forget_silence(self) -> None:
        """Keep no more audio than an utterance that begins next may need."""
        need = self._begin
        if need is None:
            pre_roll = self.settings.pre_roll_ms * INPUT_RATE_HZ // 1000
            need = max(self._base, self.voice.end_sample - pre_roll)
        self._pcm = self._pcm[(need - self._base) * SAMPLE_BYTES :]
        self._base = need

    def _between(self, begin: int, end: int) -> bytes:
        return self._pcm[(begin - self._base) * SAMPLE_BYTES : (end - self._base) * SAMPLE_BYTES]
