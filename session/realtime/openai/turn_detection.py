"""Reads `audio.input.turn_detection`: server_vad, and semantic_vad mapped onto it."""

from collections.abc import Mapping
from typing import Final

from session.config import TurnDetection, TurnDetectionPatch
from session.errors import MalformedEvent
from session.realtime.openai.readers import bad
from session.realtime.readers import Reader, flag, whole, wrong_type
from session.realtime.turn_detection import SILENCE_MS_OF_EAGERNESS, threshold

_SHARED: Final[Mapping[str, Reader]] = {"create_response": flag, "interrupt_response": flag}
_SERVER_VAD: Final[Mapping[str, Reader]] = {
    **_SHARED,
    "threshold": threshold,
    "prefix_padding_ms": whole(0, 10_000),
    "silence_duration_ms": whole(1, 60_000),
    "idle_timeout_ms": whole(1_000, 600_000),
}


def read_turn_detection(value: object, param: str) -> TurnDetectionPatch:
    """Read a partial or whole object; what it does not name stays as it is.

    Null, which switches detection off, never gets here. Members that are not known are ignored.
    """
    if not isinstance(value, dict):
        raise MalformedEvent(
            f"Invalid type for '{param}': expected an object or null.",
            code="invalid_type",
            param=param,
        )
    of_kind = _kind(value, param)
    is_semantic = of_kind.get("eagerness") is not None
    changes: dict[str, object] = dict(_eagerness(value, param)) if is_semantic else {}
    readers = _SHARED if is_semantic else _SERVER_VAD
    for name, read in readers.items():
        given = value.get(name)
        if given is not None:
            changes[name] = read(given, f"{param}.{name}")
        elif name in value and name == "idle_timeout_ms":
            changes[name] = None
    return TurnDetectionPatch(tuple(changes.items()), tuple(of_kind.items()))


def _kind(value: Mapping[str, object], param: str) -> Mapping[str, object]:
    """Return what the kind that is meant begins with; nothing where none is named."""
    match value.get("type"):
        case "semantic_vad":
            return _SEMANTIC
        case "server_vad":
            return _SERVER
        case None:
            return {} if value.get("eagerness") is None else _SEMANTIC
        case str():
            raise bad(f"{param}.type", "supported are server_vad and semantic_vad")
        case _:
            raise wrong_type(f"{param}.type", "server_vad or semantic_vad")


def _eagerness(value: Mapping[str, object], param: str) -> Mapping[str, object]:
    named = value.get("eagerness")
    if named is None:
        return {}
    if not isinstance(named, str):
        raise wrong_type(f"{param}.eagerness", "a text")
    if named not in SILENCE_MS_OF_EAGERNESS:
        known = ", ".join(SILENCE_MS_OF_EAGERNESS)
        raise bad(f"{param}.eagerness", f"supported are {known}")
    return _eager(named)


def _eager(eagerness: str) -> Mapping[str, object]:
    return {"eagerness": eagerness, "silence_duration_ms": SILENCE_MS_OF_EAGERNESS[eagerness]}


_SEMANTIC: Final = _eager("auto")
_SERVER: Final[Mapping[str, object]] = {
    "eagerness": None,
    "silence_duration_ms": TurnDetection().silence_duration_ms,
}
