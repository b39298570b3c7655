"""The types of the settings that are accepted and not used.

They are shown in every session object, so one of another type than the schema has would be a
fault in each of them for a client that looks at what it gets. Words that nobody here knows may be
those of a newer client, and pass.
"""

from collections.abc import Mapping
from typing import Final

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from session.errors import MalformedEvent
from session.realtime.field_faults import wanted_type
from session.realtime.readers import missing, wrong_type

Object = dict[str, object]


class Open(BaseModel):
    """An object that may have members besides these."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True)


class Transcription(Open):
    """How the user's words are written down."""

    model: str | None = None
    language: str | None = None
    prompt: str | None = None


class NoiseReduction(Open):
    """Where the microphone is."""

    type: str | None = None


class Prompt(Open):
    """A stored prompt."""

    id: str
    version: str | None = None
    variables: Object | None = None


class Reasoning(Open):
    """How long to think."""

    effort: str | None = None


class Tracing(Open):
    """Under which names the session is traced."""

    workflow_name: str | None = None
    group_id: str | None = None
    metadata: object = None


class Truncation(Open):
    """How much of a long conversation is kept."""

    type: str
    retention_ratio: float
    token_limits: Object | None = None


_TYPES: Final[Mapping[str, TypeAdapter[object]]] = {
    "tools": TypeAdapter(list[Object] | None),
    "tool_choice": TypeAdapter(str | Object | None),
    "parallel_tool_calls": TypeAdapter(bool | None),
    "include": TypeAdapter(list[str] | None),
    "prompt": TypeAdapter(Prompt | None),
    "reasoning": TypeAdapter(Reasoning | None),
    "tracing": TypeAdapter(str | Tracing | None),
    "truncation": TypeAdapter(str | Truncation | None),
    "audio.input.transcription": TypeAdapter(Transcription | None),
    "audio.input.noise_reduction": TypeAdapter(NoiseReduction | None),
}
"""By name on the wire. A voice is read as what it is."""

_BRANCHES: Final = frozenset({"str", "dict[str,any]", "Tracing", "Truncation"})
"""What pydantic puts into the path of a fault to name the branch of a union."""


def check_unused(name: str, value: object, prefix: str) -> None:
    """Raise MalformedEvent for a value of another type; `prefix` leads the name in the error."""
    known = _TYPES.get(name)
    if known is None:
        return
    try:
        known.validate_python(value, strict=True)
    except ValidationError as error:
        raise _refusal(f"{prefix}{name}", error) from None


def _refusal(param: str, error: ValidationError) -> MalformedEvent:
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    # A union has a fault for each of its branches; the one that reached deepest is of the branch
    # that was meant.
    paths = [[str(step) for step in each["loc"] if step not in _BRANCHES] for each in faults]
    deepest = max(map(len, paths))
    meant = [each for each, path in zip(faults, paths, strict=True) if len(path) == deepest]
    path = next(path for path in paths if len(path) == deepest)
    param = ".".join([param, *path])
    if meant[0]["type"] == "missing":
        return missing(param)
    wanted = " or ".join(wanted_type(each["type"]) or each["msg"] for each in meant)
    return wrong_type(param, wanted)
