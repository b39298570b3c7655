"""What functions returned, as sentences that can be spoken.

Rule 1: a plain text is said as it is. JSON is said in words: a field's name, then its value.
Rule 2: what is too much to listen to is cut.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Final

from session.tools import ToolOutput
from stages.embedded.sentences import as_sentence, split_sentences
from stages.embedded.writer import speakable

MOST_CHARS: Final = 600
"""About a minute of speech."""
MOST_PARSED_CHARS: Final = 65_536
NOTHING: Final = "Done."
_MOST_PARTS: Final = 20
_MOST_DEPTH: Final = 4
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NAME_SIGNS: Final = re.compile(r"[\W_]+")


def say_outputs(outputs: Iterable[ToolOutput]) -> list[str]:
    """Return the sentences that tell what was returned, oldest first."""
    return [sentence for each in outputs for sentence in _sentences(each.output)]


def _sentences(output: str) -> list[str]:
    words = " ".join(speakable(_words(output)).split())
    if len(words) > MOST_CHARS:
        words = words[:MOST_CHARS].rpartition(" ")[0] or words[:MOST_CHARS]
    if not any(character.isalnum() for character in words):
        return [NOTHING]
    return split_sentences(as_sentence(words))


def _words(output: str) -> str:
    try:
        value = json.loads(output) if len(output) <= MOST_PARSED_CHARS else output
    except (ValueError, RecursionError):
        return output[: 2 * MOST_CHARS]
    return value[: 2 * MOST_CHARS] if isinstance(value, str) else _said(value, 0)


def _said(value: object, depth: int) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case None:
            return "nothing"
        case dict() | list() if depth >= _MOST_DEPTH:
            return "more"
        case dict() | list():
            parts = _fields(value, depth) if isinstance(value, dict) else _entries(value, depth)
            return ", ".join(parts)
        case _:
            return str(value)


def _fields(value: dict[str, object], depth: int) -> Iterator[str]:
    for name, each in list(value.items())[:_MOST_PARTS]:
        yield f"{name_in_words(name)} {_said(each, depth + 1)}"


def _entries(value: list[object], depth: int) -> Iterator[str]:
    for each in value[:_MOST_PARTS]:
        yield _said(each, depth + 1)


def name_in_words(name: str) -> str:
    """Return a name of a program, such as `wind_speed` or `windSpeed`, as words."""
    return " ".join(_NAME_SIGNS.sub(" ", _CAMEL.sub(" ", name)).split()).lower()
