"""Cuts text into sentences: whole text at once, or a stream as it is written.

Rule 1: a sentence is handed out only when the next one has begun or the text has ended, so that
        whoever gets it knows whether it is the last.
Rule 2: every sentence handed out has something to say; stray signs join the sentence before.
Rule 3: joined with single spaces, the sentences are the text with its white space squeezed.
"""

import re
from collections.abc import Iterable
from typing import Final

LONG_SENTENCE: Final = 140
"""Characters after which a sentence may also end at a comma, so that its speech can begin."""
LONG_FIRST_SENTENCE: Final = 80
"""The same for the first one, for which somebody waits in silence."""
SHORT_CLAUSE: Final = 40
_CLOSERS: Final = ".!?\u2026\"'\u201d\u2019)"

_END: Final = re.compile(r"[.!?…]+[\"'”\u2019)\]]*(?=\s)|\n+")
_CLAUSE: Final = re.compile(r"[,;:—](?=\s)")
_ABBREVIATION: Final = re.compile(
    r"(?:^|[\s(\"'“\u2018])(?:mr|mrs|ms|dr|st|prof|jr|sr|vs|etc|e\.g|i\.e|[a-z]|\d{1,2})\.$",
    re.IGNORECASE,
)


class SentenceStream:
    """Collects pieces of text and hands out the sentences that are complete."""

    def __init__(self) -> None:
        self._ready: str | None = None
        self._pending = ""
        self._longest = LONG_FIRST_SENTENCE
        self._stray: list[str] = []
        """Signs before the first words."""

    def feed(self, piece: str) -> list[str]:
        """Take the next piece; return the sentences that are followed by another."""
        self._pending += piece
        done: list[str] = []
        while (cut := _find_cut(self._pending, self._longest)) is not None:
            sentence, self._pending = self._pending[:cut], self._pending[cut:]
            self._longest = LONG_SENTENCE
            done += self._hold(sentence)
        if self._ready is not None and _has_words(self._pending):
            done.append(self._ready)
            self._ready = None
        return done

    def finish(self) -> str | None:
        """Return the last sentence of all, at the end of the text, if there is one."""
        rest, self._pending = self._pending, ""
        # A sentence was handed out when this rest began to have words: nothing comes before it.
        self._hold(rest)
        last, self._ready = self._ready, None
        return last

    def _hold(self, sentence: str) -> list[str]:
        """Keep the sentence back; return the one kept before, which now has a follower."""
        squeezed = " ".join([*self._stray, *sentence.split()])
        self._stray = []
        if not squeezed:
            return []
        if not _has_words(squeezed):
            if self._ready is None:
                self._stray = [squeezed]
            else:
                self._ready = f"{self._ready} {squeezed}"
            return []
        before, self._ready = self._ready, squeezed
        return [] if before is None else [before]


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a whole text."""
    stream = SentenceStream()
    sentences = stream.feed(text)
    last = stream.finish()
    return sentences if last is None else [*sentences, last]


def pack_sentences(sentences: Iterable[str], limit: int) -> list[str]:
    """Join neighbours, evenly, so that at most `limit` pieces remain."""
    every = list(sentences)
    size = -(-len(every) // limit)
    return [" ".join(every[at : at + size]) for at in range(0, len(every), max(size, 1))]


def as_sentence(words: str) -> str:
    """Begin what has words with a capital and end it with a stop."""
    words = words.strip()
    ended = words if words[-1] in _CLOSERS else f"{words.rstrip(',;:-')}."
    return f"{ended[0].upper()}{ended[1:]}"


def _find_cut(text: str, longest: int) -> int | None:
    """Return where the first sentence of `text` ends, if it does."""
    for end in _END.finditer(text):
        if not _ABBREVIATION.search(text[: end.end()]):
            return end.end()
    if len(text) <= longest:
        return None
    clauses = [found.end() for found in _CLAUSE.finditer(text) if found.end() >= SHORT_CLAUSE]
    soon = [end for end in clauses if end <= longest]
    return soon[-1] if soon else next(iter(clauses), None)


def _has_words(text: str) -> bool:
    return any(character.isalnum() for character in text)
