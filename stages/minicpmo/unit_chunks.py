"""A unit's chunks of sound, and what belongs to each beside the sound: words, flags, times.

Rule 1: joined, the chunks' words are the unit's text; the last chunk has the unit's flags.
Rule 2: a unit that does not end its turn lasts a second at least: what lacks is silence in front of
        the next chunk. So playback that began with a unit's first chunk does not run dry before the
        next unit is due.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from session.unit import SAMPLE_BYTES, SpeechChunk, SpeechMetrics
from stages.contract import Speech
from stages.minicpmo.schedule import UNIT_SAMPLES
from stages.minicpmo.transcript import spread
from stages.minicpmo.voice_pcm import to_pcm

if TYPE_CHECKING:  # torch
    from stages.minicpmo.token2wav import Spoken


class UnitChunks:
    """Makes the chunks of one unit, in order."""

    def __init__(self, speech: Speech) -> None:
        self._speech = speech
        self._text = speech.text
        self._samples = 0
        self._coded_ms = 0.0
        self._talker_ms = 0.0
        self._waited_ms = 0.0

    def coded(self, talker_ms: float, waited_ms: float) -> None:
        """Tell how long the codes have taken; what no chunk has borne yet, the next one does."""
        self._talker_ms = max(0.0, talker_ms - self._coded_ms)
        self._coded_ms = talker_ms
        self._waited_ms = waited_ms

    def next(self, spoken: "Spoken", took_ms: float, to_come: Sequence[int]) -> SpeechChunk:
        """Return a call's chunk, which was there `took_ms` after it was asked for.

        `to_come` are the samples of the calls behind it, as far as they are known.
        """
        flow_ms, vocoder_ms = spoken.flow_s * 1000, spoken.vocoder_s * 1000
        metrics = SpeechMetrics(
            talker_ms=self._talker_ms,
            flow_ms=flow_ms,
            vocoder_ms=vocoder_ms,
            waited_ms=self._waited_ms + max(0.0, took_ms - flow_ms - vocoder_ms),
            batch=spoken.batch,
        )
        self._talker_ms = self._waited_ms = 0.0
        own = len(spoken.wave)
        words = spread(self._text, (own, *to_come))[0]
        silence = self._silence(own + sum(to_come))
        return self._chunk(silence + to_pcm(spoken.wave), words, metrics)

    def rest(self) -> SpeechChunk:
        """Return the last chunk: the words that are left, and what lacks of a second."""
        # A unit whose codes all wait for the next one has no sound, as published.
        silence = self._silence(0) if self._samples else b""
        return self.last(self._chunk(silence, self._text, None))

    def last(self, chunk: SpeechChunk) -> SpeechChunk:
        """Return a chunk as the last one."""
        return replace(chunk, segment_end=self._speech.segment_end, turn_end=self._speech.turn_end)

    def _silence(self, to_come: int) -> bytes:
        missing = UNIT_SAMPLES - self._samples - to_come
        return b"" if self._speech.turn_end else bytes(max(0, missing) * SAMPLE_BYTES)

    def _chunk(self, pcm: bytes, words: str, metrics: SpeechMetrics | None) -> SpeechChunk:
        self._text = self._text[len(words) :]
        self._samples += len(pcm) // SAMPLE_BYTES
        return SpeechChunk(pcm, words, metrics=metrics)
