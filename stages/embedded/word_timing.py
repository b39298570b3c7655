"""Which words of a phrase are said in which stretch of its sound.

The acoustic model does not tell, so words share the time by their estimated lengths, and
punctuation takes some for its pause. Off by about a word at worst, never in what is said.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_WORDS: Final = re.compile(r"\s*\S+|\s+$")
_SHORT_PAUSE: Final = 7.0
_LONG_PAUSE: Final = 21.0
_PAUSES: Final = dict.fromkeys(",\u2014", _SHORT_PAUSE) | dict.fromkeys(".!?;:\u2026", _LONG_PAUSE)
"""Frames of silence that a sign makes."""
_GAP: Final = 1.0
"""Frames from one word to the next."""
_LAST: Final = 6.6
"""How much longer the last word is."""


@dataclass(frozen=True, slots=True)
class TimedWord:
    """A word with the white space before it, and the middle of its sound as a share of all."""

    text: str
    middle: float


class Captions:
    """Hands out the words of one phrase as its sound goes by."""

    def __init__(self, words: list[TimedWord]) -> None:
        self._words = words
        self._given = 0

    def until(self, share: float) -> str:
        """Return the words whose middle lies before `share` of the sound and not given yet.

        The first call gives at least one word: text comes no later than its sound.
        """
        end = max(self._given, 1) if self._words else 0
        while end < len(self._words) and self._words[end].middle < share:
            end += 1
        return self._give(end)

    def rest(self) -> str:
        """Return all words not given yet."""
        return self._give(len(self._words))

    def _give(self, end: int) -> str:
        given = "".join(word.text for word in self._words[self._given : end])
        self._given = end
        return given


def time_words(phrase: str, length_of: Callable[[str], float]) -> list[TimedWord]:
    """Share the time of a phrase among its words; `length_of` estimates a word's frames."""
    words = _WORDS.findall(phrase)
    lengths = [length_of(word.strip()) if word.strip() else 0.0 for word in words]
    pauses = [_GAP + _PAUSES.get(word[-1:], 0.0) for word in words]
    if words:
        lengths[-1] += _LAST
        pauses[-1] = 0.0  # the silence after the phrase is not part of its sound
    total = sum(lengths) + sum(pauses)
    timed: list[TimedWord] = []
    before = 0.0
    for word, length, pause in zip(words, lengths, pauses, strict=True):
        timed.append(TimedWord(word, (before + length / 2) / total))
        before += length + pause
    return timed
