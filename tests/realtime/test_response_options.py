"""The response object of response.create: options of one answer."""

import pytest

from session.config import (
    NO_TOKEN_LIMIT,
    AnswerSettings,
    AudioEncoding,
    AudioFormat,
    ResponseOptions,
)
from session.context import ContextMessage, ItemReference
from session.ids import ItemId
from session.realtime.session_fields import PRIVATE_KEYS
from session.stimuli import ResponseRequested
from session.tools import Tool, ToolChoice, ToolUse
from tests.realtime.wire_texts import refused, sent

Fields = dict[str, object]


def options(**response: object) -> ResponseOptions:
    command = sent("response.create", response=response)
    assert isinstance(command, ResponseRequested), command
    return command.options


def message(role: str, *content: object) -> Fields:
    return {"type": "message", "role": role, "content": list(content)}


def test_input_is_read_in_its_order() -> None:
    given = [
        message("system", {"type": "input_text", "text": "be"}, {"type": "text", "text": "kind"}),
        {"type": "item_reference", "id": "item_1"},
        message("assistant", {"type": "output_text", "text": "yes"}),
    ]
    assert options(input=given, conversation="none").input == (
        ContextMessage("system", "be\nkind"),
        ItemReference(ItemId("item_1")),
        ContextMessage("assistant", "yes"),
    )
    assert options(input=[]).input == ()
    assert options(input=None).input is options().input is None


def test_all_options_are_read() -> None:
    assert options(
        modalities=["text"],
        output_audio_format="wav",
        instructions="be brief",
        voice="alto",
        temperature=0.5,
        max_output_tokens=7,
        speed=1.25,
        conversation="none",
        tools=[{"type": "function", "name": "look_up", "parameters": {"type": "object"}}],
        tool_choice={"type": "function", "name": "look_up"},
        prompt={"id": "p"},
        metadata={"trace": "t3"},
    ) == ResponseOptions(
        output_modalities=("text",),
        output_format=AudioFormat(AudioEncoding.WAV, 24_000),
        settings=AnswerSettings(
            instructions="be brief",
            voice="alto",
            temperature=0.5,
            max_output_tokens=7,
            speed=1.25,
            tools=(Tool("look_up", parameters='{"type":"object"}'),),
            tool_choice=ToolChoice(ToolUse.REQUIRED, "look_up"),
        ),
        is_out_of_band=True,
        metadata=(("trace", "t3"),),
    )


def test_nested_names_are_read_too() -> None:
    read = options(
        audio={"output": {"format": {"type": "audio/pcma"}, "voice": "alto", "speed": 1}}
    )
    assert read.output_format == AudioFormat(AudioEncoding.G711_ALAW, 8_000)
    assert (read.settings.voice, read.settings.speed) == ("alto", 1.0)


def test_private_keys_and_the_rest_are_dropped() -> None:
    dropped: Fields = dict.fromkeys(PRIVATE_KEYS, 1)
    dropped |= {"extra_body": {**dropped, "auto_response": True}, "prompt": {"id": "p"}}
    dropped |= {"tools": None, "tool_choice": None, "input": None, "conversation": "auto"}
    assert options(**dropped) == ResponseOptions()


def test_no_limit_is_something_else_than_the_session_s() -> None:
    assert options(max_tokens="inf").settings.max_output_tokens == NO_TOKEN_LIMIT
    assert options(max_output_tokens=None).settings.max_output_tokens is None


def test_no_tools_are_a_choice_too() -> None:
    read = options(tools=[], tool_choice="none").settings
    assert (read.tools, read.tool_choice) == ((), ToolChoice(ToolUse.NONE))


@pytest.mark.parametrize(
    ("response", "code", "param"),
    [
        ({"modalities": ["smell"]}, "unsupported_response_modality", "modalities"),
        ({"output_audio_format": "mp3"}, "unsupported_audio_format", "output_audio_format"),
        ({"temperature": 3}, "bad_event", "temperature"),
        ({"max_tokens": 1.5}, "invalid_type", "max_tokens"),
        ({"audio": {"output": {"speed": 9}}}, "bad_event", "audio.output.speed"),
        ({"audio": []}, "bad_event", "audio"),
        ({"conversation": "conv_1"}, "bad_event", "conversation"),
        ({"conversation": {"id": "x"}}, "bad_event", "conversation"),
        ({"input": {}}, "bad_event", "input"),
        ({"input": [{"type": "message"}] * 257}, "string_above_max_length", "input"),
        ({"input": ["hi"]}, "bad_event", "input.0"),
        ({"input": [{"role": "user"}]}, "missing_required_parameter", "input.0.type"),
        ({"input": [{"type": "function_call"}]}, "unsupported_response_input", "input.0.type"),
        ({"input": [{"type": "item_reference"}]}, "missing_required_parameter", "input.0.id"),
        ({"input": [{"type": "message", "role": "tool"}]}, "bad_event", "input.0.role"),
        ({"input": [{"type": "message"}]}, "missing_required_parameter", "input.0.role"),
        (
            {"input": [{"type": "message", "role": "user"}]},
            "missing_required_parameter",
            "input.0.content",
        ),
        (
            {"input": [{"type": "message", "role": "user", "content": "hi"}]},
            "bad_event",
            "input.0.content",
        ),
        ({"input": [message("user")]}, "bad_event", "input.0.content"),
        ({"input": [message("user", "hi")]}, "bad_event", "input.0.content.0"),
        (
            {"input": [message("user", {"type": "input_audio", "audio": "AAAA"})]},
            "unsupported_response_input",
            "input.0.content.0.type",
        ),
        (
            {"input": [message("user", {"type": "input_text"})]},
            "missing_required_parameter",
            "input.0.content.0.text",
        ),
        ({"tools": {}}, "bad_event", "tools"),
        ({"tools": [{"name": "f"}] * 129}, "bad_event", "tools"),
        ({"tools": [{"name": "f"}] * 2}, "bad_event", "tools"),
        (
            {"tools": [{"name": "f", "description": "x" * 32_768}]},
            "string_above_max_length",
            "tools",
        ),
        ({"tools": [{"type": "mcp"}]}, "bad_event", "tools.0"),
        ({"tools": [{"type": "function"}]}, "missing_required_parameter", "tools.0.name"),
        ({"tools": [{"name": "f g"}]}, "bad_event", "tools.0.name"),
        ({"tools": [{"name": "f", "parameters": []}]}, "bad_event", "tools.0.parameters"),
        (
            {"tools": [{"name": "f", "parameters": {"type": "string"}}]},
            "bad_event",
            "tools.0.parameters",
        ),
        ({"tool_choice": "always"}, "bad_event", "tool_choice"),
        ({"tool_choice": {"type": "function"}}, "missing_required_parameter", "tool_choice.name"),
        ({"metadata": []}, "bad_event", "metadata"),
        ({"metadata": {str(n): "" for n in range(17)}}, "bad_event", "metadata"),
        ({"metadata": {"a": 1}}, "bad_event", "metadata.a"),
        ({"metadata": {"a": "x" * 513}}, "bad_event", "metadata.a"),
        ({"metadata": {"k" * 65: ""}}, "bad_event", "metadata." + "k" * 64),
    ],
)
def test_a_wrong_option_is_named(response: Fields, code: str, param: str) -> None:
    assert refused(sent("response.create", response=response)) == (code, f"response.{param}")


def test_metadata_up_to_its_limits_is_kept() -> None:
    metadata = {"k" * 62 + f"{n:02}": "v" * 512 for n in range(16)}
    assert dict(options(metadata=metadata).metadata) == metadata
