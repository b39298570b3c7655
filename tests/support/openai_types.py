"""What the `openai` package's own types, and clients stricter than it, find wrong with a frame.

The package itself looks at nothing when it receives: it builds objects without validation. Others
validate, so a frame is fit for all clients when the strictest reading of the published types takes
it: no field of another type, no value outside a literal, no field or event that the types lack.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Final

from openai.types.live.server_event import ServerEvent as LiveServerEvent
from openai.types.realtime import RealtimeServerEvent
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

MAX_FRAME_BYTES: Final = 512 * 1024
"""The smallest limit among known clients is 1 MiB; half of it is kept free."""

BETA_EVENTS: Final = frozenset(
    {
        "conversation.item.created",
        "response.audio.delta",
        "response.audio.done",
        "response.audio_transcript.delta",
        "response.audio_transcript.done",
        "response.text.delta",
        "response.text.done",
        "transcription_session.created",
        "transcription_session.updated",
    }
)
"""What the wire before general availability called its events; `created` is in the types still."""

BETA_FIELDS: Final = frozenset(
    {
        "modalities",
        "input_audio_format",
        "output_audio_format",
        "input_audio_transcription",
        "input_audio_noise_reduction",
        "max_response_output_tokens",
        "temperature",
    }
)

KNOWN_EXTRAS: Final = {
    ("session.created", "session"): {"id", "object", "expires_at"},
    ("session.updated", "session"): {"id", "object", "expires_at"},
    ("session.output_audio.delta", ""): {"event_id"},
}
"""Fields outside the types of an event which stand in the types of its kin, and harm nobody."""

_REALTIME: Final[TypeAdapter[Any]] = TypeAdapter(
    Annotated[RealtimeServerEvent, Field(discriminator="type")]
)
_LIVE: Final[TypeAdapter[Any]] = TypeAdapter(
    Annotated[LiveServerEvent, Field(discriminator="type")]
)


def realtime_faults(frame: str) -> list[str]:
    """Return what is wrong with one frame of `/v1/realtime`; nothing when it is fit."""
    return list(_faults(frame, _REALTIME))


def live_faults(frame: str) -> list[str]:
    """Return what is wrong with one frame of `/v1/live/sessions`; nothing when it is fit."""
    return list(_faults(frame, _LIVE))


def object_faults(body: object, model: type[BaseModel]) -> list[str]:
    """Return what is wrong with an HTTP answer for those who read it as `model`."""
    try:
        read = model.model_validate_json(json.dumps(body), strict=True)
    except ValidationError as error:
        return [
            f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}"
            for fault in error.errors(include_url=False, include_input=False)
        ]
    return list(_extra_fields(read, model.__name__, ""))


def read_frame(frame: str) -> dict[str, Any]:
    """Return a frame's event; raise ValueError when it is no JSON object that everybody reads."""
    event = json.loads(frame, parse_constant=_no_constant, object_pairs_hook=_no_twins)
    if not isinstance(event, dict):
        raise ValueError("not an object")
    return event


def sound_faults(audio: str, *, is_pcm: bool) -> list[str]:
    """Return what is wrong with base64 sound; PCM16 has whole samples in every piece."""
    try:
        sound = base64.b64decode(audio, validate=True)
    except binascii.Error as error:
        return [f"sound is no base64: {error}"]
    if is_pcm and len(sound) % 2:
        return [f"sound of {len(sound)} bytes ends within a sample"]
    return [] if sound else ["sound of no length"]


def _faults(frame: str, types: TypeAdapter[Any]) -> Iterator[str]:
    if len(frame.encode()) >= MAX_FRAME_BYTES:
        yield f"a frame of {len(frame.encode())} bytes"
    if "\ufffd" in frame or "\\ufffd" in frame.lower():
        yield "a character that is none: U+FFFD"
    try:
        event = read_frame(frame)
    except ValueError as error:
        yield f"no JSON for everybody: {error}"
        return
    kind = str(event.get("type"))
    if kind in BETA_EVENTS:
        yield f"{kind}: a beta name"
    if kind != "session.output_audio.delta" and not event.get("event_id"):
        yield f"{kind}: no event_id"
    try:
        model = types.validate_json(frame, strict=True)
    except ValidationError as error:
        for fault in error.errors(include_url=False, include_input=False):
            place = ".".join(str(part) for part in fault["loc"])
            yield f"{kind}: {place}: {fault['msg']}"
        return
    yield from (f"{kind}: {fault}" for fault in _extra_fields(model, kind, ""))
    yield from (f"{kind}: {fault}" for fault in _javascript_faults(event))


def _extra_fields(model: BaseModel, kind: str, path: str) -> Iterator[str]:
    """Tell the fields that no type knows, at any depth; tools are as the client wrote them."""
    if re.fullmatch(r"session\.tools\.\d+", path):
        return
    known = KNOWN_EXTRAS.get((kind, path), set())
    for name in sorted(set(model.model_extra or {}) - known):
        word = "a beta field" if name in BETA_FIELDS else "not in the types"
        yield f"{path}.{name}: {word}".lstrip(".")
    for name in type(model).model_fields:
        yield from _extra_below(getattr(model, name), kind, f"{path}.{name}".lstrip("."))


def _extra_below(value: object, kind: str, path: str) -> Iterator[str]:
    match value:
        case BaseModel():
            yield from _extra_fields(value, kind, path)
        case list():
            for index, each in enumerate(value):
                yield from _extra_below(each, kind, f"{path}.{index}")
        case Mapping():  # free by its type: metadata, a tool's parameters
            return
        case _:
            return


def _javascript_faults(event: Mapping[str, Any]) -> Iterator[str]:
    """Tell what `@openai/agents-realtime` refuses though the types allow it.

    To its schemas, a field that may be absent may not be null. An item that it refuses is an
    exception in its socket's listener; another event is passed over in silence.
    """
    if str(event["type"]).startswith("session."):
        return
    yield from _nulls(event, but={"previous_item_id", "logprobs"})
    yield from _nulls(event.get("conversation"))
    yield from _nulls(event.get("part"))
    response = event.get("response") or {}
    yield from _nulls(response.get("usage"), but=_DETAILS)
    items = [event["item"]] if "item" in event else []
    for item in (*items, *(response.get("output") or [])):
        yield from _nulls(item, but={"output"})
        for part in item.get("content") or []:
            yield from _nulls(part, but={"audio", "text", "transcript"})
            if part["type"] == "input_audio" and "transcript" not in part:
                yield "input_audio without transcript, which is null while it is not known"
            if part["type"] == "output_text" and part.get("text") is None:
                yield "output_text without a text"


_DETAILS: Final = {"input_token_details", "output_token_details"}


def _nulls(there: Mapping[str, Any] | None, *, but: Iterable[str] = ()) -> Iterator[str]:
    for name, value in (there or {}).items():
        if value is None and name not in but:
            yield f"{name} is null; it may only be absent"


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(names) != len(set(names)):
        raise ValueError("a name stands twice in one object")
    return dict(pairs)
