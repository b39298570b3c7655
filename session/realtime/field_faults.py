"""Says in words what is wrong with a field that a model of the wire has refused."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from pydantic import ValidationError

from session.errors import MalformedEvent, MissingField, WrongType

_TYPES: Final[Mapping[str, str]] = {
    "string_type": "a text",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}
"""What a field of another JSON type should have been, by pydantic's name for the fault."""
_NUMBERS: Final[Mapping[str, str]] = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
}
_BOUNDS: Final[Mapping[str, str]] = {
    "greater_than_equal": "{ge} at least",
    "less_than_equal": "{le} at most",
    "literal_error": "{expected}",
    "string_too_short": "{min_length} characters long at least",
    "too_short": "a list of {min_length} at least",
}
_LENGTHS: Final[Mapping[str, str]] = {
    "string_too_long": "at most {max_length} characters long",
    "too_long": "a list of at most {max_length}",
}


class FieldFault(NamedTuple):
    """What is wrong with the first field that is wrong."""

    kind: str
    """Pydantic's name for it."""
    param: str
    message: str

    def error(self, code: str | None = None) -> MalformedEvent:
        """Return the error, under a code of its own or the usual one."""
        if self.kind == "missing":
            return MissingField(self.message, code=code, param=self.param)
        if self.kind in _NUMBERS:
            return WrongType(self.message, code=code or "invalid_type", param=self.param)
        if self.kind in _TYPES:
            return WrongType(self.message, code=code, param=self.param)
        if self.kind == "string_too_long":
            code = code or "string_above_max_length"
        return MalformedEvent(self.message, code=code, param=self.param)


def first_fault(error: ValidationError) -> FieldFault:
    """Return the first fault that a model found."""
    first = error.errors(include_url=False, include_input=False)[0]
    param = ".".join(str(step) for step in first["loc"])
    words = _in_words(first["type"], first["msg"], first.get("ctx", {}), param)
    return FieldFault(first["type"], param, words)


def wanted_type(kind: str) -> str | None:
    """Return what a field should have been that is of another JSON type; None: it is of that."""
    return _TYPES.get(kind) or _NUMBERS.get(kind)


def _in_words(kind: str, said: str, bounds: Mapping[str, object], param: str) -> str:
    if kind == "missing":
        return f"{param} is missing"
    if kind == "extra_forbidden":
        return f"{param} is not known here; leave it out"
    limit = _BOUNDS.get(kind) or _LENGTHS.get(kind)
    wanted = limit.format(**bounds) if limit is not None else wanted_type(kind)
    return f"{param} must be {wanted}" if wanted is not None else f"{param}: {said}"
