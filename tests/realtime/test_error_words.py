"""The words of refusals: they name the field as it is written, and say what to do."""

import json
from typing import Any

import pytest

from session.realtime.dialects.openai_shapes import error_object
from session.realtime.live.reader import LiveReader
from session.realtime.opening import ClientHabits
from session.stimuli import EventRefused, SessionConfigured
from tests.realtime.openai_wire import CONFIG, read
from tests.realtime.wire_texts import MAX_BYTES

IMAGE = {"type": "message", "role": "user", "content": [{"type": "input_image"}]}


def openai_words(event: dict[str, Any]) -> tuple[str, str]:
    """Return code and message of an event's refusal on the OpenAI wire."""
    command = read(event)
    assert isinstance(command, EventRefused), command
    shown = error_object(command.error, None)
    return shown.code, shown.message


def live_words(*events: dict[str, Any]) -> str:
    """Return the message that the last event is refused with on the live wire."""
    reader = LiveReader(ClientHabits())
    command = [reader.decode(json.dumps(each), max_bytes=MAX_BYTES) for each in events][-1]
    assert isinstance(command, EventRefused), command
    return command.error.message


@pytest.mark.parametrize(
    ("session", "code", "message"),
    [
        ({"instructions": 5}, "invalid_type", "'session.instructions' must be a text"),
        (
            {"audio": {"output": {"speed": 9}}},
            "invalid_value",
            "'session.audio.output.speed' must be from 0.25 to 1.5",
        ),
        ({"tool_choice": 5}, "invalid_type", None),
        ({"output_modalities": "text"}, "invalid_type", None),
        ({"tools": [5]}, "invalid_type", "'session.tools.0' must be an object"),
    ],
)
def test_a_field_stays_as_it_is_written(
    session: dict[str, Any], code: str, message: str | None
) -> None:
    said = openai_words({"type": "session.update", "session": session})
    assert said[0] == code
    assert message is None or said[1] == message


@pytest.mark.parametrize(
    ("session", "code", "param"),
    [
        ({"tool_choice": "never"}, "bad_event", "session.tool_choice"),
        (
            {"tools": [{"type": "function"}]},
            "missing_required_parameter",
            "session.tools.0.name",
        ),
        ({"tools": [{"type": "function", "name": 5}]}, "invalid_type", "session.tools.0.name"),
        (
            {"tools": [{"name": "f", "parameters": 5}]},
            "invalid_type",
            "session.tools.0.parameters",
        ),
        (
            {"tool_choice": {"type": "function", "name": "sing"}},
            "bad_event",
            "session.tool_choice",
        ),
    ],
)
def test_a_fault_of_tools_names_its_place(session: dict[str, Any], code: str, param: str) -> None:
    command = read({"type": "session.update", "session": session})
    assert isinstance(command, SessionConfigured), command
    fault = command.patch.apply_to(CONFIG).tools_fault
    assert fault is not None
    assert (fault.code, fault.param) == (code, param)
    assert fault.message.startswith(param)
    assert error_object(fault.error(), None).message.startswith(f"'{param}")


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({"type": "session.resume"}, "connect with ?duplex=1"),
        ({"type": "session.event_ack"}, "connect with ?duplex=1"),
        ({"type": "session.begin"}, "docs/wire/openai.md"),
        ({}, "docs/wire/openai.md"),
        ({"type": "conversation.item.create", "item": IMAGE}, "images are not taken"),
        (
            {"type": "conversation.item.create", "item": {"type": "function_call_output"}},
            "'item.call_id' is missing",
        ),
    ],
)
def test_what_there_is_instead_is_said(event: dict[str, Any], words: str) -> None:
    assert words in openai_words(event)[1]


START = {"type": "session.start", "session": {"model": "m"}}


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (
            {"type": "session.update", "session": {"instructions": "x"}},
            (
                "session.instructions can not change by session.update: "
                "use session.instructions.append"
            ),
        ),
        (
            {"type": "session.instructions.append", "content": "x"},
            "delegation_id is missing: it must be there, and may be null",
        ),
        (
            {"type": "session.close", "x": 1},
            "x is not known here; leave it out",
        ),
        ({"type": "session.input_audio.append", "audio": 5}, "audio must be a text"),
        ({"type": "session.begin"}, "docs/wire/live.md lists the events"),
    ],
)
def test_the_live_wire_says_it_in_words(event: dict[str, Any], message: str) -> None:
    assert message in live_words(START, event)
