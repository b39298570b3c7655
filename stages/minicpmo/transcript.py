"""Which of a unit's words belong to which of its chunks of sound.

Rule 1: joined, the parts are the text, whatever it is.
Rule 2: a part begins with the blank before a word, or with a character of a script that has no
        blanks; never inside of what a reader sees as one character.
Rule 3: a word goes with the chunk that its beginning falls into, if the text is spread evenly over
        the sound. What is left goes with the last chunk.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

import regex

_CHARACTER: Final = regex.compile(r"\X")
_WITHOUT_BLANKS: Final = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
)


def spread(text: str, lengths: Sequence[int]) -> tuple[str, ...]:
    """Return a text's parts for chunks of these lengths, in any unit; no parts for no chunks."""
    if not lengths:
        return ()
    parts = [""] * len(lengths)
    sound = sum(lengths)
    ends = [end / sound if sound else 1.0 for end in accumulate(lengths)]
    chunk = 0
    for at, word in _words(_CHARACTER.findall(text)):
        while chunk < len(parts) - 1 and at >= ends[chunk]:
            chunk += 1
        parts[chunk] += word
    return tuple(parts)


def _words(characters: Sequence[str]) -> Iterator[tuple[float, str]]:
    """Yield each word, and which share of the text comes before it."""
    start = 0
    for place in range(1, len(characters) + 1):
        if place == len(characters) or _begins_word(characters[place - 1], characters[place]):
            yield start / len(characters), "".join(characters[start:place])
            start = place


def _begins_word(before: str, character: str) -> bool:
    if before.isspace():
        return False
    if character.isspace() or _WITHOUT_BLANKS.match(character):
        return True
    return character[0].isalnum() and _WITHOUT_BLANKS.match(before) is not None
