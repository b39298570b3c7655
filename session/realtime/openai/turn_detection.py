"""Reads `audio.input.turn_detection`: server_vad, and semantic_vad mapped onto it."""

from collections.abc import Mapping
from typing import Final

from session.config import TurnDetectionPatch
from session.errors import MalformedEvent
from session.realtime.openai.readers import bad
from session.realtime.readers import Reader, flag, whole
from session.realtime.turn_detection import threshold

_SHARED: Final[Mapping[str, Reader]] = {"create_response": flag, "interrupt_response": flag}
_SERVER_VAD: Final[Mapping[str, Reader]] = {
    **_SHARED,
    "threshold": threshold,
    "prefix_padding_ms": whole(0, 10_000),
    "silence_duration_ms": whole(1, 60_000),
    "idle_timeout_ms": whole(1_000, 600_000),
}
SILENCE_MS_OF_EAGERNESS: Final[Mapping[str, int]] = {
    "high": 300,
    "medium": 500,
    "auto": 500,
    "low": 1_000,
}
"""semantic_vad says in words how long to wait; here that is a length of silence."""


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
    changes: dict[str, object] = dict(_kind(value, param))
    readers = _SHARED if changes.get("eagerness") else _SERVER_VAD
    for name, read in readers.items():
        given = value.get(name)
        if given is not None:
            changes[name] = read(given, f"{param}.{name}")
        elif name in value and name == "idle_timeout_ms":
            changes[name] = None
    return TurnDetectionPatch(tuple(changes.items()))


def _kind(value: dict[str, object], param: str) -> Mapping[str, object]:
    match value.get("type"):
        case "semantic_vad":
            named = value.get("eagerness")
            eagerness = "auto" if named is None else named
            if not isinstance(eagerness, str) or eagerness not in SILENCE_MS_OF_EAGERNESS:
                known = ", ".join(SILENCE_MS_OF_EAGERNESS)
                raise bad(f"{param}.eagerness", f"supported are {known}")
            return {
                "eagerness": eagerness,
                "silence_duration_ms": SILENCE_MS_OF_EAGERNESS[eagerness],
            }
        case "server_vad":
            return {"eagerness": None}
        case None:
            return {}
        case _:
            raise bad(f"{param}.type", "supported are server_vad and semantic_vad")
