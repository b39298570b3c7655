"""An answer's text as it grows: what of it can be shown, token by token and character by character.

Rule 1: tokens are bytes, and a unit may end in the middle of a character. Those tokens wait for the
        next unit, and with them the character before, which they may belong to.
Rule 2: an emoji that stands last waits too: what follows may make another one of it.
Rule 3: joined, what was shown is the text of all the answer's tokens, without bytes that are no
        character. At the end of a turn nothing waits any more.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import regex

Tokens = tuple[int, ...]
DecodeText = Callable[[Tokens], str]

_NO_CHARACTER: Final = "\N{REPLACEMENT CHARACTER}"
_LAST: Final = regex.compile(rf"\X?{_NO_CHARACTER}+\Z|\X\Z")
_MAY_GROW: Final = regex.compile(r"[\p{Extended_Pictographic}\p{Regional_Indicator}\u200d]")
_LONGEST_WAIT: Final = 32
"""Characters: what is longer than that is no emoji."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What one unit adds."""

    text: str
    waiting: Tokens
    """Tokens whose text will be shown with the next unit's."""


def readable(tokens: Tokens, decode_text: DecodeText) -> str:
    """Return the tokens' text without bytes that are no character."""
    return decode_text(tokens).replace(_NO_CHARACTER, "")


def show(waiting: Tokens, said: Tokens, decode_text: DecodeText, *, is_last: bool) -> Shown:
    """Return what can be shown of tokens that waited and of what was said behind them."""
    tokens = waiting + said
    if is_last:
        return Shown(readable(tokens, decode_text), ())
    whole = decode_text(tokens)
    end = len(whole) - len(_unfinished(whole))
    if end == len(whole):
        return Shown(readable(tokens, decode_text), ())
    count = len(tokens)
    # A prefix that ends inside of a character decodes to something else than the whole begins with.
    while count and not _is_prefix(decode_text(tokens[:count]), whole[:end]):
        count -= 1
    return Shown(readable(tokens[:count], decode_text), tokens[count:])


def _is_prefix(text: str, whole: str) -> bool:
    return whole.startswith(text) and not text.endswith(_NO_CHARACTER)


def _unfinished(text: str) -> str:
    """Return the end of a text that more text could make something else of."""
    last = _LAST.search(text)
    if last is None:
        return ""
    end: str = last.group()
    waits = end.endswith(_NO_CHARACTER) or _MAY_GROW.search(end) is not None
    return end if waits and len(end) <= _LONGEST_WAIT else ""
