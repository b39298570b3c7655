"""The names that one setting has on the wire, flat and nested, and the way to its value.

A setting may come under several names. The first of them that an object holds counts, so a
setting's most specific name stands first in its row.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from session.realtime.readers import Reader, wrong_type

_NESTED: Final = frozenset({"audio", "audio.input", "audio.output", "extra_body"})

Named = dict[str, object]
"""A session's or response's fields by dotted name, such as `audio.output.voice`."""


class Setting(NamedTuple):
    """One field of the domain, how to read it, and its names on the wire."""

    field: str
    read: Reader
    names: tuple[str, ...]
    is_nullable: bool = False
    """Whether null is a value. Where it is not, null says nothing and is skipped."""


def flatten(fields: Named, prefix: str) -> Named:
    """Return `fields` with the members of nested objects under dotted names."""
    return dict(_flatten(fields, "", prefix))


def _flatten(fields: Named, path: str, prefix: str) -> Iterator[tuple[str, object]]:
    for key, value in fields.items():
        name = path + key
        if name not in _NESTED:
            yield name, value
        elif isinstance(value, dict):
            yield from _flatten(value, f"{name}.", prefix)
        elif value is not None:
            raise wrong_type(prefix + name, "an object")


def take(named: Named, names: Iterable[str]) -> tuple[str, object]:
    """Remove all of `names`; return the first that is there with its value, else ("", None)."""
    found = [(name, named.pop(name)) for name in names if name in named]
    return found[0] if found else ("", None)


def take_settings(
    named: Named, settings: Iterable[Setting], prefix: str
) -> Iterator[tuple[str, object]]:
    """Remove all of `settings`; yield the fields that were named, with their values as read."""
    for setting in settings:
        name, value = take(named, setting.names)
        if not name:
            continue
        if value is not None:
            yield setting.field, setting.read(value, prefix + name)
        elif setting.is_nullable:
            yield setting.field, None
