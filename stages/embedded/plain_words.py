"""A request as plain words: what rules compare, whether it was typed or came from Whisper."""

import re
from typing import Final

_CONTRACTIONS: Final = {
    "what's": "what is",
    "whats": "what is",
    "how's": "how is",
    "who's": "who is",
    "it's": "it is",
    "that's": "that is",
    "let's": "let us",
    "i'm": "i am",
    "you're": "you are",
}
_LEAD: Final = re.compile(
    r"^(?:(?:hello|hi|hey)(?: there)?|okay|ok|so|um|uh|well|now|and|please"
    r"|(?:can|could|would|will) you|i want you to|i would like you to)\s+(?=\S)"
)
_TAIL: Final = re.compile(r"(?<=\S)\s+(?:please|for me|right now|now)$")
_SYMBOLS: Final = (
    (re.compile(r"(?<=\d),(?=\d{3}\b)"), ""),
    (re.compile(r"\+"), " plus "),
    (re.compile(r"(?<=\d)\s*(?:[\u00d7*]|x(?=\s*\d))"), " times "),
    (re.compile(r"[\u00f7/]"), " divided by "),
    (re.compile(r"="), " equals "),
    (re.compile(r"(?<=\d)\s*[-\u2212\u2013]\s*(?=\d)|\s[-\u2212\u2013]\s+(?=\d)"), " minus "),
    (re.compile(r"[-\u2212](?=\d)"), " minus "),
)
_NOT_WORDS: Final = re.compile(r"(?<!\d)\.|\.(?!\d)|[^a-z0-9.' ]")


def plain_words(text: str) -> str:
    """Return lower-case words and numbers with single spaces, symbols of sums spelled out."""
    plain = text.lower().replace("\u2019", "'")
    for symbol, words in _SYMBOLS:
        plain = symbol.sub(words, plain)
    words_only = _NOT_WORDS.sub(" ", plain).split()
    return " ".join(_CONTRACTIONS.get(word, word) for word in words_only)


def without_politeness(plain: str) -> str:
    """Return the request without what leads up to it and what softens it."""
    while (shorter := _TAIL.sub("", _LEAD.sub("", plain))) != plain:
        plain = shorter
    return plain


def stem(word: str) -> str:
    """Return a plain word without the ending of the plural or the possessive."""
    word = word.removesuffix("'s")
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
