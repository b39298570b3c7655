"""Which words of a phrase are said in which stretch of its sound.

The acoustic model does not tell, so words share the time by their number of phonemes, and
punctuation takes some for its pause. Off by about a word at worst, never in what is said.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_WORDS: Final = re.compile(r"\s*\S+|\s+$")
_PAUSES: Final = {",": 3, ";": 4, ":": 4, ".": 6, "!": 6, "?": 6, "\u2026": 6, "\u2014": 3}
"""Length of a pause, in phonemes."""


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


def time_words(phrase: str, sounds_in: Callable[[str], int]) -> list[TimedWord]:
    """Share the time of a phrase among its words."""
    words = _WORDS.findall(phrase)
    lengths = [max(1, sounds_in(word.strip())) if word.strip() else 0 for word in words]
    pauses = [_PAUSES.get(word[-1:], 0) for word in words]
    if pauses:
        pauses[-1] = 0  # the silence after the phrase is not part of its sound
    total = sum(lengths) + sum(pauses) or 1
    timed: list[TimedWord] = []
    before = 0
    for word, length, pause in zip(words, lengths, pauses, strict=True):
        timed.append(TimedWord(word, (before + length / 2) / total))
        before += length + pause
    return timed
