"""Reads the `turn_detection` object: server_vad, and semantic_vad mapped onto it."""

from collections.abc import Mapping
from typing import Final

from session.config import TurnDetectionPatch
from session.errors import ClientError, UnsupportedOption
from session.realtime.readers import Reader, bad_value, flag, number, whole

_LOWEST_THRESHOLD: Final = 0.15
"""Detection ends an utterance 0.15 below its threshold, which must stay above zero."""


def threshold(value: object, param: str) -> float:
    """Read the probability from which on a window is speech."""
    read = number(0.0, 1.0)(value, param)
    if read <= _LOWEST_THRESHOLD:
        raise bad_value(param, f"above {_LOWEST_THRESHOLD}")
    return read


_FIELDS: Final[Mapping[str, Reader]] = {
    "threshold": threshold,
    "prefix_padding_ms": whole(0, 10_000),
    "silence_duration_ms": whole(1, 60_000),
    "min_speech_duration_ms": whole(0, 10_000),
    "create_response": flag,
    "interrupt_response": flag,
    "interrupt_confidence": number(0.0, 1.0),
    "idle_timeout_ms": whole(1_000, 600_000),
}
_TYPE_FIELDS: Final = ("type", "eagerness")
SILENCE_MS_OF_EAGERNESS: Final[Mapping[str, int]] = {
    "high": 300,
    "medium": 500,
    "auto": 500,
    "low": 1_000,
}
"""semantic_vad says how long to wait in words; here that is a length of silence."""


def read_turn_detection(value: object, param: str) -> TurnDetectionPatch:
    """Read a partial or whole object. (Null, which switches detection off, never gets here.)"""
    if not isinstance(value, dict):
        raise _unsupported(f"{param} must be null or an object", param)
    changes = dict(_semantic_changes(value, param))
    for name, given in value.items():
        if name in _TYPE_FIELDS or (given is None and name != "idle_timeout_ms"):
            continue
        changes[name] = _read_field(name, given, f"{param}.{name[:64]}")
    return TurnDetectionPatch(tuple(changes.items()))


def _semantic_changes(value: dict[str, object], param: str) -> list[tuple[str, object]]:
    match value.get("type"):
        case "semantic_vad":
            given = value.get("eagerness")
            eagerness = "auto" if given is None else given
            if not isinstance(eagerness, str) or eagerness not in SILENCE_MS_OF_EAGERNESS:
                raise _unsupported(
                    f"{param}.eagerness must be low, medium, high or auto", f"{param}.eagerness"
                )
            return [("silence_duration_ms", SILENCE_MS_OF_EAGERNESS[eagerness])]
        case "server_vad" | None if "eagerness" not in value:
            return []
        case "server_vad" | None:
            raise _unsupported(f"{param}.eagerness belongs to semantic_vad", f"{param}.eagerness")
        case _:
            raise _unsupported(
                f"{param}.type must be server_vad or semantic_vad; null switches it off",
                f"{param}.type",
            )


def _read_field(name: str, given: object, param: str) -> object:
    read = _FIELDS.get(name)
    if read is None:
        raise _unsupported(f"{param} is not known; known are {', '.join(_FIELDS)}", param)
    if given is None:
        return None
    try:
        return read(given, param)
    except ClientError as error:
        raise _unsupported(error.message, param) from None


def _unsupported(message: str, param: str) -> UnsupportedOption:
    return UnsupportedOption(message, code="unsupported_turn_detection", param=param)
