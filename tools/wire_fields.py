"""What a field of the wire holds, in words, read from the annotations of its class."""

import dataclasses
import enum
import inspect
import json
import types
from collections.abc import Iterable, Iterator
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NewType,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import AliasChoices, BaseModel
from pydantic.fields import FieldInfo

from session.errors import DuplexError
from session.realtime.event_objects import ErrorObject
from session.realtime.server_objects import WireObject
from tools.docstrings import attribute_docs, summary

LARGEST_COUNT: Final = 2**53 - 1
"""Upper bound of every whole number; not worth a word."""

_PLAIN: Final[dict[object, str]] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    bytes: "base64",
    object: "JSON",
    Any: "JSON",
    type(None): "null",
}


_BOUNDED: Final = (str, int, float)
WRITTEN_AS: Final[dict[object, type]] = {DuplexError: ErrorObject}
"""What is not written as the class that it is."""


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One field of an event or object."""

    name: str
    holds: str
    presence: str
    """Of a client's field: required or not. Of the server's: always there, or perhaps not."""
    meaning: str


def is_object(kind: object) -> bool:
    """Whether an annotation is a class with fields of its own."""
    return isinstance(kind, type) and (
        issubclass(kind, BaseModel) or dataclasses.is_dataclass(kind)
    )


def rows(kind: type, *, skip: Iterable[str] = ()) -> list[Row]:
    """Return the fields of a class, those that it inherits among them."""
    docs: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if is_object(base) and base is not BaseModel:
            docs |= attribute_docs(base)
    found = _model_rows(kind, docs) if issubclass(kind, BaseModel) else _dataclass_rows(kind, docs)
    return [row for row in found if row.name not in skip]


def meaning(kind: type) -> str:
    """Return the first paragraph of a class's own docstring."""
    return summary(inspect.getdoc(kind) or "")


def objects_in(kinds: Iterable[type]) -> list[type]:
    """Return the classes that fields of `kinds` hold, and those of theirs, in order of sight."""
    found: dict[type, None] = {}
    waiting = list(kinds)
    while waiting:
        for held in _held_by(waiting.pop(0)):
            if held not in found:
                found[held] = None
                waiting.append(held)
    return list(found)


def _held_by(kind: type) -> Iterator[type]:
    if issubclass(kind, BaseModel):
        annotations: Iterable[object] = (field.annotation for field in kind.model_fields.values())
    else:
        annotations = get_type_hints(kind).values()
    for annotation in annotations:
        yield from _classes_in(annotation)


def _classes_in(annotation: object) -> Iterator[type]:
    written = WRITTEN_AS.get(annotation, annotation)
    if isinstance(written, type) and is_object(written):
        yield written
    if get_origin(annotation) is Literal:
        return
    for part in get_args(annotation):
        yield from _classes_in(part)


def _model_rows(kind: type[BaseModel], docs: dict[str, str]) -> Iterator[Row]:
    for name, field in kind.model_fields.items():
        written, others = _names(name, field)
        also = f"Also {', '.join(f'`{other}`' for other in others)}." if others else ""
        holds = _holds(field.annotation, field.metadata)
        if field.exclude_if is not None:
            holds = holds.removesuffix(" or null")
        says = " ".join(filter(None, [docs.get(name, ""), also]))
        yield Row(written, holds, _presence(kind, field), says)


def _names(name: str, field: FieldInfo) -> tuple[str, list[str]]:
    """Return a field's name on the wire, and the others under which it is taken."""
    alias = field.validation_alias
    if isinstance(alias, AliasChoices):
        first, *others = [str(choice) for choice in alias.choices]
        return first, others
    return str(alias or field.alias or name), []


def _presence(kind: type[BaseModel], field: FieldInfo) -> str:
    if issubclass(kind, WireObject):
        return "always" if field.exclude_if is None else "may be absent"
    return "required" if field.is_required() else ""


def _dataclass_rows(kind: type, docs: dict[str, str]) -> Iterator[Row]:
    hints = get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        yield Row(field.name, _holds(hints[field.name], []), "always", docs.get(field.name, ""))


def _holds(annotation: object, metadata: Iterable[object]) -> str:
    """Say what a value of a type is."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner, *around = parts
        flat = [*around, *(one for each in around for one in getattr(each, "metadata", ()))]
        return _holds(inner, flat)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_holds(part, metadata) for part in parts))
    if origin is Literal:
        return " or ".join(f"`{_literal(value)}`" for value in parts)
    if origin in (tuple, list):
        return f"list of {_holds(parts[0], [])}"
    if origin is dict or annotation is dict:
        return "object"
    if isinstance(annotation, NewType):
        return _holds(annotation.__supertype__, metadata)
    bounds = _bounds(metadata, is_text=annotation is str) if annotation in _BOUNDED else ""
    return _single(annotation) + bounds


def _single(annotation: object) -> str:
    annotation = WRITTEN_AS.get(annotation, annotation)
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return " or ".join(f"`{option.value}`" for option in annotation)
    if isinstance(annotation, type) and is_object(annotation):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    raise TypeError(f"no words for {annotation!r}")


def _bounds(metadata: Iterable[object], *, is_text: bool) -> str:
    bounds = {
        name: getattr(one, name)
        for one in metadata
        for name in ("ge", "gt", "le", "lt", "max_length")
        if getattr(one, name, None) is not None
    }
    if is_text:
        longest = bounds.get("max_length")
        return f" of up to {longest:,} characters" if longest else ""
    low, high = bounds.get("ge"), bounds.get("le")
    if low is None or high is None:
        return f" from {low:g}" if low is not None else ""
    return f" from {low:g}" if high == LARGEST_COUNT else f" from {low:g} to {high:g}"


def _literal(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
