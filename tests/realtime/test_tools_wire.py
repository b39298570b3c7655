"""Tools on the duplex wire: what a session says of them, and how a call looks."""

from dataclasses import replace
from typing import Any

import pytest

from session.config import ConfigPatch, SessionConfig
from session.stimuli import PlaybackAcked, SessionConfigured
from session.tools import FREE_CHOICE, NO_TOOLS, Tool, ToolChoice, ToolList, ToolUse
from tests.realtime.samples import (
    CALL,
    CALLED,
    DELTA,
    FINISHED,
    LAST_DELTA,
    OPENED,
    QUIET_CONFIG,
    SPEAK,
    STARTED,
    project,
    types,
)
from tests.realtime.wire_texts import refused, sent
from tests.support.wire_order import SPOKEN_ENDS

LATE = replace(STARTED, has_message=False)
CALL_ALONE = replace(FINISHED, message_index=None, calls=(CALL,))
JOINED = ["conversation.item.added", "conversation.item.created"]
ARGUMENTS = ["response.function_call_arguments.delta", "response.function_call_arguments.done"]
CALL_EVENTS = [
    *JOINED,
    "response.output_item.added",
    *ARGUMENTS,
    "response.output_item.done",
    "conversation.item.done",
]


def after(**session: object) -> SessionConfig:
    command = sent("session.update", session=session)
    assert isinstance(command, SessionConfigured), command
    return command.patch.apply_to(QUIET_CONFIG)


def only(events: list[dict[str, Any]], event_type: str) -> dict[str, Any]:
    """Return the one event of a type."""
    (event,) = [each for each in events if each["type"] == event_type]
    return event


# --- of a session -----------------------------------------------------------------------------


def test_a_session_s_tools_are_read_and_echoed() -> None:
    tool = {
        "type": "function",
        "name": "look_up",
        "description": "The weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    }
    config = after(tools=[tool], tool_choice="required")
    schema = '{"type":"object","properties":{"city":{"type":"string"}}}'
    assert config.tools == ToolList((Tool("look_up", "The weather.", schema),))
    assert config.tool_choice == ToolChoice(ToolUse.REQUIRED)
    assert config.tools_fault is None
    assert {"tools", "tool_choice"} <= dict(config.echoed).keys()


def test_one_of_them_can_change_alone_and_null_is_the_default() -> None:
    tools = [{"type": "function", "name": "look_up"}]
    config = after(tools=tools, tool_choice={"type": "function", "name": "look_up"})
    assert config.tool_choice == ToolChoice(ToolUse.REQUIRED, "look_up")
    patch = sent("session.update", session={"tool_choice": None})
    assert isinstance(patch, SessionConfigured)
    changed = patch.patch.apply_to(config)
    assert (changed.tools, changed.tool_choice) == (config.tools, FREE_CHOICE)
    assert after(tools=None).tools == NO_TOOLS


@pytest.mark.parametrize(
    "session",
    [
        {"tools": "all"},
        {"tools": [{"type": "mcp", "server_label": "x"}]},
        {"tools": [{"type": "function"}]},
        {"tool_choice": {"type": "mcp"}},
        {"tool_choice": {"type": "function", "name": "nobody"}},
    ],
)
def test_what_can_not_be_read_is_echoed_and_noted(session: dict[str, object]) -> None:
    config = after(**session)
    assert config.tools_fault is not None
    assert dict(config.echoed).keys() == session.keys()


def test_a_patch_without_tools_leaves_them() -> None:
    config = after(tools=[{"name": "look_up"}])
    assert ConfigPatch((("temperature", 0.2),)).apply_to(config).tools == config.tools


# --- a call -----------------------------------------------------------------------------------


def test_a_call_that_stands_alone_in_its_order() -> None:
    events = project(LATE, CALLED, CALL_ALONE)
    assert [each["type"] for each in events] == [
        "response.created",
        *CALL_EVENTS,
        "response.done",
        "rate_limits.updated",
    ]
    item = {
        "id": "item_call",
        "object": "realtime.item",
        "type": "function_call",
        "status": "completed",
        "call_id": "call_1",
        "name": "look_up",
        "arguments": '{"city":"Oslo"}',
    }
    begun = {**item, "status": "in_progress", "arguments": ""}
    assert only(events, "conversation.item.added")["item"] == begun
    assert only(events, "response.output_item.added")["item"] == begun
    assert only(events, "response.output_item.done")["item"] == item
    assert only(events, "conversation.item.done")["item"] == item
    assert only(events, "response.done")["response"]["output"] == [item]
    delta, done = (only(events, name) for name in ARGUMENTS)
    ids = {"response_id": "resp_1", "item_id": "item_call", "output_index": 0, "call_id": "call_1"}
    assert ids.items() <= delta.items()
    assert ids.items() <= done.items()
    assert delta["delta"] == done["arguments"] == '{"city":"Oslo"}'
    assert done["name"] == "look_up"


def test_a_call_after_words_is_the_second_item() -> None:
    called = replace(CALLED, output_index=1)
    events = project(
        LATE, OPENED, SPEAK, DELTA, LAST_DELTA, called, replace(FINISHED, calls=(CALL,))
    )
    assert [each["type"] for each in events] == [
        "response.created",
        *JOINED,
        "response.output_item.added",
        "response.content_part.added",
        "response.speak",
        *["response.audio.delta", "response.audio_transcript.delta"] * 2,
        *CALL_EVENTS,
        *SPOKEN_ENDS,
    ]
    placed = [
        (each.get("item", {}).get("id", each.get("item_id")), each["output_index"])
        for each in events
        if "output_index" in each
    ]
    assert set(placed) == {("item_resp_1", 0), ("item_call", 1)}
    output = only(events, "response.done")["response"]["output"]
    assert [each["type"] for each in output] == ["message", "function_call"]


def test_words_after_a_call_are_the_second_item_in_every_event() -> None:
    opened = replace(OPENED, output_index=1)
    finished = replace(FINISHED, message_index=1, calls=(CALL,))
    events = project(LATE, CALLED, opened, SPEAK, DELTA, finished)
    placed = {
        (each.get("item", {}).get("id", each.get("item_id")), each["output_index"])
        for each in events
        if "output_index" in each
    }
    assert placed == {("item_call", 0), ("item_resp_1", 1)}
    output = only(events, "response.done")["response"]["output"]
    assert [each["type"] for each in output] == ["function_call", "message"]


def test_an_answer_that_brings_nothing_has_no_items() -> None:
    events = project(LATE, replace(FINISHED, message_index=None))
    assert [each["type"] for each in events] == [
        "response.created",
        "response.done",
        "rate_limits.updated",
    ]
    assert events[1]["response"]["output"] == []


def test_outside_the_conversation_no_item_joins_it() -> None:
    sent_types = types(
        replace(LATE, is_out_of_band=True),
        replace(CALLED, is_out_of_band=True),
        replace(OPENED, is_out_of_band=True, output_index=1),
        replace(CALL_ALONE, is_out_of_band=True),
    )
    assert not [name for name in sent_types if name.startswith("conversation.")]
    assert sent_types.count("response.output_item.added") == 2


def test_a_written_answer_that_opens_late_is_a_text() -> None:
    written = replace(LATE, output_modalities=("text",))
    opened = replace(OPENED, is_text_only=True)
    events = project(written, opened)
    assert only(events, "response.content_part.added")["part"] == {"type": "text", "text": ""}


# --- an acknowledgement that cuts -------------------------------------------------------------


def test_an_acknowledgement_says_whether_it_cuts() -> None:
    assert sent("playback.ack", played_ms=5) == PlaybackAcked(5)
    assert sent("playback.ack", played_ms=5, truncate=True) == PlaybackAcked(5, truncates=True)
    assert refused(sent("playback.ack", played_ms=5, truncate="yes")) == ("bad_event", "truncate")
