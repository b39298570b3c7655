"""hibari's voice: a phrase becomes phonemes, and phonemes become acoustic frames.

The acoustic model makes all frames of a phrase at once, in a few hundredths of a second.
"""

import re
import threading
from collections.abc import Sequence
from dataclasses import fields
from typing import Final, Self

import numpy as np
from hibari import Hibari

from stages.embedded.vocoder import Floats, Frames

LEAD_FRAMES: Final = 4
"""Near-silent frames kept before the first sound; the model itself makes over 20."""
TRAIL_FRAMES: Final = 16
"""And after the last one: the pause between two sentences."""
SLOWEST: Final = 0.5
FASTEST: Final = 2.0

_STRESS: Final = "\u02c8\u02cc"
_DIPHTHONGS: Final = "AIOQWY"
_VOWELS: Final = _DIPHTHONGS + (
    "aeiou\u00e6\u0250\u0251\u0252\u0254\u0259\u025a\u025b\u025c\u026a\u028a\u028c\u1d4a\u1d7b"
)
_STRESSED_VOWEL: Final = 7.8
_VOWEL: Final = 4.6
_GLIDE: Final = 3.5
_CONSONANT: Final = 4.5

_AUDIBLE_DB: Final = -20.0
_LONG_TEXT: Final = 160
_SENTENCE_END: Final = re.compile(r"(?<=[.!?\u2026])(?=\s+\S)")


class Voice:
    """The only packaged voice; usable from several threads."""

    def __init__(self, hibari: Hibari) -> None:
        self._hibari = hibari
        # The pronunciation rules keep caches of their own.
        self._reading = threading.Lock()

    @classmethod
    def load(cls) -> Self:
        """Load the voice inside the package; the others would be downloads."""
        return cls(Hibari(threads=1))

    def speak(self, phrase: str, speed: float) -> Frames | None:
        """Return the frames of a phrase, or None if there is nothing in it to say."""
        with self._reading:
            read = self._hibari.phonemize(phrase)
            # Punctuation alone would come out as a breath.
            parts = [self._hibari.ids(part) for part in read if any(map(str.isalpha, part))]
        spoken = [self._frames(ids, speed) for ids in parts]
        return _joined(spoken) if spoken else None

    def length_of(self, word: str) -> float:
        """Estimate how many frames a word takes to say."""
        with self._reading:
            return phoneme_frames(self._hibari.g2p(word))

    def _frames(self, ids: Sequence[int], speed: float) -> Frames:
        made = self._hibari.sess.run(
            None,
            {
                "ids": np.asarray([ids], np.int64),
                "speed": np.asarray([min(max(speed, SLOWEST), FASTEST)], np.float32),
            },
        )
        return audible_part(Frames(*(layer[0] for layer in made)))


def phoneme_frames(phonemes: str) -> float:
    """Estimate the frames of a word from its phonemes: a least-squares fit to this voice."""
    frames = 0.0
    is_stressed = False
    for phoneme in phonemes:
        if phoneme in _STRESS:
            is_stressed = True
        elif phoneme in _VOWELS:
            frames += _STRESSED_VOWEL if is_stressed else _VOWEL
            frames += _GLIDE if phoneme in _DIPHTHONGS else 0.0
            is_stressed = False
        elif phoneme.isalpha():
            frames += _CONSONANT
    return frames


def phrases_of(text: str) -> list[str]:
    """Cut long text after its sentences, so that its first sound need not wait for its last.

    Joined without separators the phrases are the text.
    """
    return [text] if len(text) <= _LONG_TEXT else _SENTENCE_END.split(text)


def audible_part(frames: Frames) -> Frames:
    """Return the frames with sound in them and a little silence on both sides."""
    gains = (frames.voice_gain, frames.noise_gain, frames.free_gain)
    power = sum(np.exp(2 * np.minimum(gain, np.float32(7))).mean(axis=0) for gain in gains)
    loud = np.flatnonzero(power > 10 ** (_AUDIBLE_DB / 10))
    if not len(loud):
        return frames
    begin = max(0, int(loud[0]) - LEAD_FRAMES)
    end = min(frames.count, int(loud[-1]) + 1 + TRAIL_FRAMES)
    return Frames(*(layer[..., begin:end] for layer in _layers(frames)))


def _joined(parts: list[Frames]) -> Frames:
    if len(parts) == 1:
        return parts[0]
    return Frames(
        *(np.concatenate(layers, axis=-1) for layers in zip(*map(_layers, parts), strict=True))
    )


def _layers(frames: Frames) -> list[Floats]:
    return [getattr(frames, layer.name) for layer in fields(frames)]
