"""Reads the session object of this dialect into a ConfigPatch.

Rule 1: the whole schema is accepted. What means something here is applied; the rest is echoed, and
        is an error only where it is of another type than the schema has.
Rule 2: only what is named changes, down to the members of nested objects.
Rule 3: a name of the Beta interface is refused, in words that give the new one.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Final

from session.config import ConfigPatch
from session.echoed import EchoedPatch
from session.realtime.openai.beta_names import refuse_beta_names
from session.realtime.openai.readers import (
    audio_format,
    bad,
    output_modalities,
    token_limit,
    voice_name,
)
from session.realtime.openai.turn_detection import read_turn_detection
from session.realtime.openai.unused_settings import check_unused
from session.realtime.readers import MAX_TEXT_CHARS, number, text, wrong_type
from session.realtime.setting_names import Named, Setting, flatten, take_settings
from session.realtime.tool_fields import (
    is_function,
    read_functions,
    session_tool_choice,
    session_tools,
)

MAX_ECHO_BYTES: Final = 32_768
"""A field is echoed only up to this size, as JSON text in UTF-8."""

_SETTINGS: Final = (
    Setting("output_modalities", output_modalities, ("output_modalities",)),
    Setting("instructions", text(MAX_TEXT_CHARS), ("instructions",), is_nullable=True),
    Setting("max_output_tokens", token_limit, ("max_output_tokens",)),
    Setting("speed", number(0.25, 1.5), ("audio.output.speed",)),
    Setting("input_format", audio_format, ("audio.input.format",)),
    Setting("output_format", audio_format, ("audio.output.format",)),
    Setting(
        "turn_detection", read_turn_detection, ("audio.input.turn_detection",), is_nullable=True
    ),
)
_TRANSCRIPTION: Final = "audio.input.transcription"
ECHOED: Final = (
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "include",
    "prompt",
    "reasoning",
    "tracing",
    "truncation",
    _TRANSCRIPTION,
    "audio.input.noise_reduction",
    "audio.output.voice",
)
"""Fields of the schema that are said back as they came. Others, which nobody knows, are passed
over: strict clients take no field that the schema does not have."""
_TOOL_FIELDS: Final = ("type", "name", "description", "parameters")


def read_session(session: Mapping[str, object], prefix: str = "session.") -> ConfigPatch:
    """Return the changes that a session object asks for; `prefix` leads the names in errors.

    Raises MalformedEvent or UnsupportedOption for a value that can not be meant.
    """
    kind = session.get("type")
    if not isinstance(kind, str | None):
        raise wrong_type(f"{prefix}type", "realtime")
    if kind not in (None, "realtime"):
        raise bad(f"{prefix}type", "this endpoint has sessions of type realtime only")
    refuse_beta_names(session, prefix)
    named = flatten(dict(session), prefix)
    changes = dict(take_settings(named, _SETTINGS, prefix))
    if named.get("audio.output.voice") is not None:
        changes["voice"] = voice_name(named["audio.output.voice"], f"{prefix}audio.output.voice")
    if "tools" in named:
        changes["tools"] = session_tools(named["tools"], f"{prefix}tools", read_functions)
    if "tool_choice" in named:
        changes["tool_choice"] = session_tool_choice(
            _choice(named["tool_choice"]), f"{prefix}tool_choice"
        )
    if _TRANSCRIPTION in named:
        changes["wants_transcription"] = named[_TRANSCRIPTION] is not None
    echoed = tuple(_echoed(named, prefix))
    if echoed:
        changes["echoed"] = EchoedPatch(echoed, merges_below="audio.")
    return ConfigPatch(tuple(changes.items()))


def _choice(value: object) -> object:
    """Return a tool choice; one of a remote server means no function of ours."""
    if isinstance(value, dict) and value.get("type") not in (None, "function"):
        return None
    return value


def _echoed(named: Named, prefix: str) -> Iterator[tuple[str, str]]:
    for name in ECHOED:
        if name not in named:
            continue
        check_unused(name, named[name], prefix)
        value = _known_tools(named[name]) if name == "tools" else named[name]
        as_json = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        if len(as_json.encode()) <= MAX_ECHO_BYTES:
            yield name, as_json


def _known_tools(value: object) -> object:
    """Return tools without members of functions that the schema does not have."""
    if not isinstance(value, list):
        return []  # null: none
    return [
        {key: tool[key] for key in _TOOL_FIELDS if key in tool}
        if isinstance(tool, dict) and is_function(tool)
        else tool
        for tool in value
    ]
