"""The types of the settings that are accepted and not used.

They are shown in every session object, so one of another type than the schema has would be a
fault in each of them for a client that looks at what it gets. Words that nobody here knows may be
those of a newer client, and pass.
"""

from collections.abc import Mapping
from typing import Final

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from session.errors import MalformedEvent

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


def check_unused(name: str, value: object, prefix: str) -> None:
    """Raise MalformedEvent for a value of another type; `prefix` leads the name in the error."""
    known = _TYPES.get(name)
    if known is None:
        return
    try:
        known.validate_python(value, strict=True)
    except ValidationError as error:
        # Of a union, the last branch is the one that says most.
        last = error.errors(include_url=False, include_context=False, include_input=False)[-1]
        raise MalformedEvent(
            f"Invalid value for '{prefix}{name}': {last['msg']}.",
            code="missing_required_parameter" if last["type"] == "missing" else "invalid_type",
            param=f"{prefix}{name}",
        ) from None
