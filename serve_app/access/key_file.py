"""The file of API keys: one key a line, with its name and what it may have.

    KEY
    KEY name=alice max_sessions=4 max_opens_per_minute=30

Rule 1: a line that is wrong makes the whole file wrong: whoever misspells a bound would set none.
Rule 2: a fault names the line and the field, never a key. Of many faults the first are told.
Rule 3: keys with one name are one client, so that a key can be replaced without a hole. What one
        of their lines says of its bounds holds for all of them.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from serve_app.access.principal import ANYONE_NAME, USUAL_TERMS, Principal, QuotaPatch

COMMENT: Final = "#"
NAME: Final = "name"
BOUNDS: Final = ("max_sessions", "max_opens_per_minute")
NO_BOUND: Final = "none"
"""Lifts a bound that keys have otherwise."""
FIELDS: Final = (NAME, *BOUNDS)
LARGEST: Final = 1_000_000
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NAMELESS: Final = "key_"
_MOST_TOLD: Final = 10
_LINE_END: Final = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key that opens the door."""

    value: str = field(repr=False)
    principal: Principal
    terms: QuotaPatch = USUAL_TERMS
    """What its client may have, where that is not what all may have."""


class KeyFileError(ValueError):
    """What is wrong in a file of keys; has no key in it."""


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    key: ApiKey


def nameless(value: str) -> ApiKey:
    """Return a key that has no name of its own."""
    digest = hashlib.sha256(value.encode()).hexdigest()
    return ApiKey(value, Principal(f"{_NAMELESS}{digest[:8]}"))


def read_keys(written: bytes) -> tuple[ApiKey, ...]:
    """Return the keys that are written in a file; raises KeyFileError, which has every fault."""
    try:
        text = written.decode("utf-8-sig")  # some editors begin a file with a mark
    except UnicodeDecodeError:
        raise KeyFileError("the file is not UTF-8") from None
    lines, faults = [], []
    for number, line in enumerate(_LINE_END.split(text), start=1):
        words = line.split()
        if not words or words[0].startswith(COMMENT):
            continue
        try:
            if not line.replace("\t", " ").isprintable():
                raise KeyFileError(
                    "it has a character that is not seen, such as a control character"
                )
            lines.append(_Line(number, _read_line(words)))
        except KeyFileError as error:
            faults.append(f"line {number}: {error}")
    faults += [*_twins(lines), *_contradictions(lines)]
    if faults:
        more = len(faults) - _MOST_TOLD
        told = [*faults[:_MOST_TOLD], *([f"and {more} more faults"] if more > 0 else [])]
        raise KeyFileError("; ".join(told))
    return tuple(line.key for line in lines)


def _read_line(words: list[str]) -> ApiKey:
    key = nameless(words[0])
    seen: set[str] = set()
    changes: list[tuple[str, int | None]] = []
    for place, word in enumerate(words[1:], start=2):
        name, equals, value = word.partition("=")
        if not equals or name not in FIELDS:
            # What stands here may be a second key, so it is not repeated.
            raise KeyFileError(f"word {place} must be one of {', '.join(FIELDS)}, = and a value")
        if name in seen:
            raise KeyFileError(f"{name} stands twice")
        seen.add(name)
        if name == NAME:
            key = replace(key, principal=Principal(_read_name(value)))
        else:
            changes.append((name, _read_bound(name, value)))
    return replace(key, terms=QuotaPatch(tuple(changes)))


def _read_name(value: str) -> str:
    if _NAME.fullmatch(value) is None:
        raise KeyFileError(f"{NAME} must be letters, digits and . _ - (1 to 64 of them)")
    if value == ANYONE_NAME or value.startswith(_NAMELESS):
        raise KeyFileError(
            f"{NAME} must not be {ANYONE_NAME}, nor begin with {_NAMELESS}, which keys without a "
            "name have"
        )
    return value


def _read_bound(name: str, value: str) -> int | None:
    if value == NO_BOUND:
        return None
    if re.fullmatch(r"[0-9]{1,7}", value) is None or not 0 < int(value) <= LARGEST:
        raise KeyFileError(f"{name} must be a whole number from 1 to {LARGEST}, or {NO_BOUND}")
    return int(value)


def _twins(lines: Iterable[_Line]) -> Iterator[str]:
    first: dict[str, int] = {}
    for line in lines:
        before = first.setdefault(line.key.value, line.number)
        if before != line.number:
            yield f"line {line.number}: the same key as in line {before}"


def _contradictions(lines: Iterable[_Line]) -> Iterator[str]:
    said: dict[tuple[Principal, str], tuple[int, int | None]] = {}
    for line in lines:
        for name, bound in line.key.terms.changes:
            before, known = said.setdefault((line.key.principal, name), (line.number, bound))
            if known != bound:
                yield (
                    f"line {line.number}: {name} must be that of line {before}: the keys have "
                    f"one {NAME}, and so one quota"
                )
