"""Fields that a session accepts without using them, and says back as they came.

Rule 1: they are bounded, and may be forgotten for it; so nothing here depends on one.
"""

import json
from dataclasses import dataclass
from typing import Final

ECHO_MAX_BYTES: Final = 65_536
"""Bound of all fields that a session echoes without using them, as JSON text in UTF-8."""


@dataclass(frozen=True, slots=True)
class EchoedPatch:
    """Fields to echo from now on: name and JSON text. A name that is repeated is replaced."""

    fields: tuple[tuple[str, str], ...]
    merges_below: str | None = None
    """In fields whose name begins so, members of an object that are not named stay. Every other
    field is replaced as a whole."""

    def resolve(self, current: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        """Merge into `current`; where all together would be too large, newer fields win."""
        named = dict(self.fields)
        if self.merges_below is not None:
            before = dict(current)
            named = {
                name: _merged(before[name], text)
                if name in before and name.startswith(self.merges_below)
                else text
                for name, text in named.items()
            }
        merged = [pair for pair in current if pair[0] not in named] + list(named.items())
        kept: list[tuple[str, str]] = []
        room = ECHO_MAX_BYTES
        for name, text in reversed(merged):
            size = len(name.encode()) + len(text.encode())
            if size <= room:
                room -= size
                kept.append((name, text))
        return tuple(reversed(kept))


def _merged(before: str, after: str) -> str:
    """Return JSON text `after`, with what `before` has besides where both are objects."""
    old, new = json.loads(before), json.loads(after)
    return json.dumps(_deep(old, new), ensure_ascii=False, separators=(",", ":"))


def _deep(old: object, new: object) -> object:
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return new
    return {**old, **{key: _deep(old.get(key), value) for key, value in new.items()}}
