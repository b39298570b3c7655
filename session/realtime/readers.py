"""Readers: each turns one untrusted JSON value into a value of the domain, or says what is wrong.

A reader is called with the value and the name of its field on the wire, which it puts into the
error as `param`.
"""

import base64
import enum
from collections.abc import Callable
from typing import Final, TypeVar

from session.errors import BadAudio, MalformedEvent, MissingField, UnsupportedOption, WrongType

MAX_TEXT_CHARS: Final = 65_536
"""Longest text of an item or of instructions: it must fit into one server event."""
MAX_NAME_CHARS: Final = 256
MAX_REF_AUDIO_CHARS: Final = 8_388_608
MODALITIES: Final = ("text", "audio")

Reader = Callable[[object, str], object]
E_ = TypeVar("E_", bound=enum.Enum)


def bad_value(param: str, wanted: str) -> MalformedEvent:
    """Return the error for a field that is not what is wanted."""
    return MalformedEvent(f"{param} must be {wanted}", param=param)


def wrong_type(param: str, wanted: str) -> WrongType:
    """Return the error for a field of another JSON type than the one that is wanted."""
    return WrongType(f"{param} must be {wanted}", param=param)


def no_number(param: str, wanted: str) -> WrongType:
    """Return the error for a field that is no number where one is wanted."""
    return WrongType(f"{param} must be {wanted}", code="invalid_type", param=param)


def too_long(param: str, limit: str) -> MalformedEvent:
    """Return the error for a field that is longer than `limit`, which names its unit."""
    return MalformedEvent(
        f"{param} must be at most {limit} long", code="string_above_max_length", param=param
    )


def missing(param: str) -> MissingField:
    """Return the error for a field that is not there."""
    return MissingField(f"{param} is missing", param=param)


def text(max_chars: int) -> Callable[[object, str], str]:
    """Read a text of at most `max_chars` characters."""

    def read(value: object, param: str) -> str:
        if not isinstance(value, str):
            raise wrong_type(param, "a text")
        if len(value) > max_chars:
            raise too_long(param, f"{max_chars} characters")
        return value

    return read


def number(low: float, high: float) -> Callable[[object, str], float]:
    """Read a number from `low` to `high`."""

    def read(value: object, param: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise no_number(param, "a number")
        if not low <= value <= high:
            raise bad_value(param, f"from {low:g} to {high:g}")
        return float(value)

    return read


def whole(low: int, high: int) -> Callable[[object, str], int]:
    """Read a whole number from `low` to `high`; 500.0 is one, 500.5 and true are not."""

    def read(value: object, param: str) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise no_number(param, "a whole number")
        if not low <= value <= high:
            raise bad_value(param, f"from {low} to {high}")
        return value

    return read


def flag(value: object, param: str) -> bool:
    """Read true or false."""
    if not isinstance(value, bool):
        raise wrong_type(param, "true or false")
    return value


def choice(options: type[E_]) -> Callable[[object, str], E_]:
    """Read one of an enumeration's values."""

    def read(value: object, param: str) -> E_:
        for option in options:
            if option.value == value:
                return option
        raise bad_value(param, "one of " + ", ".join(str(option.value) for option in options))

    return read


def token_limit(value: object, param: str) -> int | None:
    """Read a limit of generated tokens; "inf" is none."""
    return None if value == "inf" else whole(1, 32_768)(value, param)


def voice(value: object, param: str) -> str:
    """Read a voice: its name, or an object with its id."""
    named = value.get("id") if isinstance(value, dict) else value
    return text(MAX_NAME_CHARS)(named, param)


def modalities(value: object, param: str) -> tuple[str, ...]:
    """Read output modalities; fails closed on any that is unknown."""
    if isinstance(value, list) and value and all(entry in MODALITIES for entry in value):
        return tuple(dict.fromkeys(value))
    raise UnsupportedOption(
        f"{param} must be a list of text, audio or both; nothing else can be answered in",
        code="unsupported_response_modality",
        param=param,
    )


def ref_audio(value: object, param: str) -> bytes:
    """Read a voice recording from a `data:` URL. Paths and other URLs are never opened."""
    head, comma, encoded = value.partition(",") if isinstance(value, str) else ("", "", "")
    if not (comma and head.startswith("data:audio/") and head.endswith(";base64")):
        raise UnsupportedOption(
            f"{param} must be the recording itself, as data:audio/wav;base64,...; "
            "paths and URLs are not opened",
            code="unsupported_ref_audio_path",
            param=param,
        )
    if len(encoded) > MAX_REF_AUDIO_CHARS:
        raise too_long(param, f"{MAX_REF_AUDIO_CHARS} characters")
    return base64_bytes(encoded, param)


def base64_bytes(encoded: str, param: str) -> bytes:
    """Decode audio from strict base64."""
    try:
        return strict_base64(encoded)
    except ValueError:
        raise BadAudio(
            f"{param} must be base64 in the standard alphabet (+ and /), padded with =, "
            "without white space",
            param=param,
        ) from None


def strict_base64(encoded: str) -> bytes:
    """Decode padded base64 of the standard alphabet; raise ValueError for anything else."""
    # Python's own check lets padding pass behind a complete group.
    if len(encoded) % 4 or encoded.endswith("==="):
        raise ValueError("wrong padding")
    return base64.b64decode(encoded, validate=True)
