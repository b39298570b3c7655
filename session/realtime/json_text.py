"""Reads one JSON object from untrusted text.

Rule 1: whatever the text holds, it is an object or one `invalid_json`; nothing else is raised.
Rule 2: what is read can be written again as UTF-8 JSON: numbers are finite, no text holds half a
        surrogate pair, nesting is shallow. Of a repeated key the last wins.
"""

import json
import re
from typing import Final, NoReturn

from session.errors import MalformedEvent

MAX_DEPTH: Final = 64

_MAYBE_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")


def parse_object(text: str) -> dict[str, object]:
    """Return the object that `text` is; raise MalformedEvent (`invalid_json`) if it is none."""
    try:
        value: object = _DECODER.decode(text)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise _invalid(f"not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise _invalid('an event is a JSON object, such as {"type": "session.update"}')
    if _is_deeper(value, MAX_DEPTH):
        raise _too_deep()
    if not _is_encodable(text, value):
        raise _invalid("a text holds half a surrogate pair, which is not a character")
    return value


def utf8_size(text: str) -> int:
    """Return how many bytes `text` has on the wire."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _finite(literal: str) -> float:
    value = float(literal)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"the number {literal[:20]} is too large")
    return value


def _refuse_constant(literal: str) -> NoReturn:
    raise ValueError(f"{literal} is not a JSON number")


_Container = dict[str, object] | list[object]
_DECODER: Final = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse_constant)


def _is_deeper(value: _Container, limit: int) -> bool:
    level: list[_Container] = [value]
    for _ in range(limit):
        level = [child for parent in level for child in _containers_in(parent)]
        if not level:
            return False
    return True


def _containers_in(value: _Container) -> list[_Container]:
    children = value.values() if isinstance(value, dict) else value
    return [child for child in children if isinstance(child, dict | list)]


def _is_encodable(text: str, value: object) -> bool:
    try:
        if not text.isascii():
            text.encode()
        # One character is found at memory speed; an append has none of it and is done here.
        if "\\" in text and _MAYBE_SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _invalid(message: str) -> MalformedEvent:
    return MalformedEvent(message, code="invalid_json")


def _too_deep() -> MalformedEvent:
    return _invalid(f"nested more than {MAX_DEPTH} levels deep")
