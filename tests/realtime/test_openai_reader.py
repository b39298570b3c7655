"""Reading a client of the OpenAI interface: what each event asks for, and what is refused."""

import json
from typing import Any

import pytest
from hypothesis import given

from session.config import (
    AudioEncoding,
    AudioFormat,
    ConfigPatch,
    SessionConfig,
    TurnDetection,
)
from session.echoed import EchoedPatch
from session.realtime.commands import AudioReceived
from session.realtime.dialects.openai_shapes import error_object
from session.realtime.openai.reader import STANDARD_EVENTS, VENDOR_EVENTS, OpenAIReader
from session.realtime.opening import ClientHabits
from session.stimuli import (
    EventRefused,
    HeartbeatReceived,
    InputCommitted,
    ItemTruncated,
    OutputClearRequested,
    ResponseRequested,
    SessionConfigured,
)
from session.tools import ToolUse
from tests.realtime.openai_wire import CONFIG, read
from tests.realtime.test_decode_fuzz import EVENTS
from tests.realtime.wire_texts import MAX_BYTES


def update(**session: Any) -> SessionConfig:
    """Return the settings of a session after an update."""
    command = read({"type": "session.update", "session": session})
    assert isinstance(command, SessionConfigured), command
    assert command.is_lenient
    return command.patch.apply_to(CONFIG)


def refusal(event: dict[str, Any]) -> tuple[str, str | None]:
    """Return code and param of an event's error, as its client sees them."""
    command = read(event)
    assert isinstance(command, EventRefused), command
    shown = error_object(command.error, command.event_id)
    return shown.code, shown.param


# --- events ------------------------------------------------------------------------------------


def test_the_standard_events_are_these() -> None:
    assert set(STANDARD_EVENTS) == {
        "session.update",
        "input_audio_buffer.append",
        "input_audio_buffer.commit",
        "input_audio_buffer.clear",
        "output_audio_buffer.clear",
        "conversation.item.create",
        "conversation.item.retrieve",
        "conversation.item.delete",
        "conversation.item.truncate",
        "response.create",
        "response.cancel",
    }
    assert not set(STANDARD_EVENTS) & set(VENDOR_EVENTS)


def test_audio_is_in_the_format_of_the_session() -> None:
    command = read({"type": "input_audio_buffer.append", "audio": "AAAA", "format": "wav"})
    assert command == AudioReceived(b"\0\0\0", None, wire_bytes=4)


def test_a_commit_makes_an_item_of_anything_and_asks_for_nothing() -> None:
    command = read({"type": "input_audio_buffer.commit", "event_id": "e"})
    assert command == InputCommitted(create_response=False, is_speech=True, event_id="e")


def test_a_truncation_needs_all_its_fields() -> None:
    whole = {"item_id": "i", "content_index": 0, "audio_end_ms": 500}
    truncate = {"type": "conversation.item.truncate"}
    assert read({**truncate, **whole}) == ItemTruncated("i", 500, 0)  # type: ignore[arg-type]
    for name in whole:
        rest = {key: value for key, value in whole.items() if key != name}
        assert refusal({**truncate, **rest}) == ("missing_required_parameter", name)
    assert refusal({**truncate, **whole, "audio_end_ms": 1.5}) == ("invalid_type", "audio_end_ms")


def test_an_answer_may_be_asked_for_without_input() -> None:
    command = read({"type": "response.create"})
    assert isinstance(command, ResponseRequested)
    assert command.is_bare
    assert command.is_lenient


def test_an_answers_own_options() -> None:
    response = {
        "output_modalities": ["text"],
        "conversation": "none",
        "metadata": {"a": "b"},
        "audio": {"output": {"format": {"type": "audio/pcmu"}}},
        "tools": [{"type": "function", "name": "f"}, {"type": "mcp", "server_label": "x"}],
    }
    command = read({"type": "response.create", "response": response})
    assert isinstance(command, ResponseRequested), command
    options = command.options
    assert options.output_modalities == ("text",)
    assert options.output_format == AudioFormat(AudioEncoding.G711_ULAW, 8_000)
    assert (options.is_out_of_band, options.metadata) == (True, (("a", "b"),))
    assert options.settings.tools is not None
    assert [tool.name for tool in options.settings.tools] == ["f"]


@pytest.mark.parametrize(
    ("response", "error"),
    [
        ({"modalities": ["text"]}, ("unknown_parameter", "response.modalities")),
        ({"max_output_tokens": 5_000}, ("invalid_value", "response.max_output_tokens")),
        (
            {"output_modalities": ["text", "audio"]},
            ("unsupported_response_modality", "response.output_modalities"),
        ),
        (
            {"audio": {"output": {"format": {"type": "audio/pcm", "rate": 16000}}}},
            ("invalid_value", "response.audio.output.format.rate"),
        ),
        ({"metadata": {"a": 1}}, ("invalid_type", "response.metadata.a")),
    ],
)
def test_options_that_can_not_be_meant(response: dict[str, Any], error: tuple[str, str]) -> None:
    assert refusal({"type": "response.create", "response": response}) == error


def test_other_events_are_read_as_on_the_duplex_wire_and_noted() -> None:
    habits = ClientHabits()
    assert isinstance(read({"type": "response.cancel"}, habits), object)
    assert not habits.uses_vendor_events
    assert isinstance(read({"type": "session.heartbeat"}, habits), HeartbeatReceived)
    assert habits.uses_vendor_events
    assert not habits.clears_output
    assert isinstance(read({"type": "output_audio_buffer.clear"}, habits), OutputClearRequested)
    assert habits.clears_output


@pytest.mark.parametrize("event", [{"type": "session.resume"}, {"type": "x"}, {}, {"type": 7}])
def test_what_is_no_event(event: dict[str, Any]) -> None:
    habits = ClientHabits()
    assert isinstance(read(event, habits), EventRefused)
    assert refusal(event) == ("invalid_value", "type")
    assert not habits.uses_vendor_events


def test_frames_that_are_none() -> None:
    reader = OpenAIReader(ClientHabits())
    assert isinstance(reader.decode("[1]", max_bytes=MAX_BYTES), EventRefused)
    assert isinstance(reader.decode('{"type": "response.cancel"}', max_bytes=9), EventRefused)


@given(EVENTS)
def test_reading_is_total(event: dict[str, Any]) -> None:
    command = OpenAIReader(ClientHabits()).decode(json.dumps(event), max_bytes=MAX_BYTES)
    if isinstance(command, EventRefused):
        error_object(command.error, command.event_id).model_dump_json()
    elif isinstance(command, SessionConfigured):
        command.patch.apply_to(CONFIG)


# --- the session -------------------------------------------------------------------------------


def test_settings_that_mean_something() -> None:
    config = update(
        type="realtime",
        model="another",
        instructions="Be brief.",
        output_modalities=["text"],
        max_output_tokens=12,
        tools=[{"type": "function", "name": "f", "meta": 1}],
        tool_choice="required",
        audio={
            "input": {"format": {"type": "audio/pcma"}},
            "output": {"format": {"type": "audio/pcm"}, "voice": {"id": "v"}, "speed": 1.5},
        },
    )
    assert config.model == CONFIG.model
    assert (config.instructions, config.output_modalities) == ("Be brief.", ("text",))
    assert (config.max_output_tokens, config.speed, config.voice) == (12, 1.5, "v")
    assert config.input_format == AudioFormat(AudioEncoding.G711_ALAW, 8_000)
    assert config.output_format == AudioFormat(AudioEncoding.PCM16, 24_000)
    assert [tool.name for tool in config.tools.tools] == ["f"]
    assert config.tool_choice.use is ToolUse.REQUIRED
    assert dict(config.echoed)["tools"] == '[{"type":"function","name":"f"}]'


def test_no_limit_and_no_instructions() -> None:
    config = update(max_output_tokens="inf", instructions=None, audio=None, tools=None)
    assert (config.max_output_tokens, config.instructions) == (None, None)
    assert config.tools.tools == ()
    assert dict(config.echoed)["tools"] == "[]"


def test_tools_of_remote_servers_are_said_back_and_not_called() -> None:
    server = {"type": "mcp", "server_label": "a"}
    config = update(tools=[server], tool_choice={"type": "mcp", "server_label": "a"})
    assert (config.tools.tools, config.tools.fault) == ((), None)
    assert config.tool_choice.use is ToolUse.AUTO
    assert json.loads(dict(config.echoed)["tools"]) == [server]


def test_an_error_names_a_tools_place_in_the_clients_list() -> None:
    tools = [{"type": "mcp", "server_label": "a"}, {"type": "function"}]
    fault = update(tools=tools).tools.fault
    assert fault is not None
    assert (fault.code, fault.param) == ("missing_required_parameter", "session.tools.1.name")
    refused = read({"type": "response.create", "response": {"tools": tools}})
    assert isinstance(refused, EventRefused), refused
    assert refused.error.param == "response.tools.1.name"


@pytest.mark.parametrize(
    ("name", "value", "code", "below"),
    [
        ("tools", "all", "invalid_type", ""),
        ("tools", [7], "invalid_type", ".0"),
        ("tool_choice", 7, "invalid_type", ""),
        ("parallel_tool_calls", "yes", "invalid_type", ""),
        ("include", {"a": 1}, "invalid_type", ""),
        ("include", [None], "invalid_type", ".0"),
        ("prompt", "pmpt_1", "invalid_type", ""),
        ("prompt", {}, "missing_required_parameter", ".id"),
        ("reasoning", [], "invalid_type", ""),
        ("tracing", True, "invalid_type", ""),
        ("tracing", {"workflow_name": 7}, "invalid_type", ".workflow_name"),
        ("truncation", 0.5, "invalid_type", ""),
        (
            "truncation",
            {"type": "retention_ratio"},
            "missing_required_parameter",
            ".retention_ratio",
        ),
        ("audio.input.transcription", "whisper-1", "invalid_type", ""),
        ("audio.input.transcription", {"model": 1}, "invalid_type", ".model"),
        ("audio.input.noise_reduction", "near_field", "invalid_type", ""),
    ],
)
def test_what_is_only_said_back_has_the_type_of_the_schema(
    name: str, value: object, code: str, below: str
) -> None:
    *above, last = name.split(".")
    session: dict[str, object] = {last: value}
    for each in reversed(above):
        session = {each: session}
    event = {"type": "session.update", "session": session}
    assert refusal(event) == (code, f"session.{name}{below}")


def test_words_of_a_newer_client_are_said_back() -> None:
    tracing = {"workflow_name": "a", "since": 2031}
    config = update(tracing=tracing, audio={"input": {"noise_reduction": {"type": "in_a_car"}}})
    assert json.loads(dict(config.echoed)["tracing"]) == tracing


def test_words_are_told_also_where_the_wish_is_too_long_to_say_back() -> None:
    config = update(audio={"input": {"transcription": {"prompt": "x" * 40_000}}})
    assert config.wants_transcription
    assert not config.echoed
    for asked in (None, {"language": "en"}):
        config = update(audio={"input": {"transcription": asked}})
        assert config.wants_transcription is (asked is not None)


def test_a_field_too_long_to_say_back_is_taken_all_the_same() -> None:
    assert "prompt" not in dict(update(prompt={"id": "x" * 40_000}).echoed)


@pytest.mark.parametrize(
    ("detection", "expected"),
    [
        ({"type": "server_vad"}, TurnDetection()),
        (
            {"type": "server_vad", "threshold": 0.8, "silence_duration_ms": 200},
            TurnDetection(threshold=0.8, silence_duration_ms=200),
        ),
        ({"type": "semantic_vad"}, TurnDetection(eagerness="auto")),
        (
            {"type": "semantic_vad", "eagerness": "low", "threshold": 0.9},
            TurnDetection(eagerness="low", silence_duration_ms=1_000),
        ),
        (
            {"eagerness": "high"},
            TurnDetection(eagerness="high", silence_duration_ms=300),
        ),
        ({"idle_timeout_ms": None, "whatever": 1}, TurnDetection()),
        ({"idle_timeout_ms": 6_000}, TurnDetection(idle_timeout_ms=6_000)),
    ],
)
def test_turn_detection(detection: dict[str, Any], expected: TurnDetection) -> None:
    assert update(audio={"input": {"turn_detection": detection}}).turn_detection == expected


def test_turn_detection_is_switched_off_by_null() -> None:
    assert update(audio={"input": {"turn_detection": None}}).turn_detection is None


@pytest.mark.parametrize(
    ("session", "error"),
    [
        ({"type": "transcription"}, ("invalid_value", "session.type")),
        ({"voice": "x"}, ("unknown_parameter", "session.voice")),
        ({"audio": 7}, ("invalid_type", "session.audio")),
        ({"speed": 1}, ("unknown_parameter", "session.speed")),
        (
            {"audio": {"input": {"format": "pcm16"}}},
            ("invalid_type", "session.audio.input.format"),
        ),
        ({"max_output_tokens": 5_000}, ("invalid_value", "session.max_output_tokens")),
        ({"instructions": 7}, ("invalid_type", "session.instructions")),
        (
            {"audio": {"input": {"turn_detection": 7}}},
            ("invalid_type", "session.audio.input.turn_detection"),
        ),
        (
            {"audio": {"input": {"turn_detection": {"type": "x"}}}},
            ("invalid_value", "session.audio.input.turn_detection.type"),
        ),
        (
            {"audio": {"input": {"turn_detection": {"type": "semantic_vad", "eagerness": "x"}}}},
            ("invalid_value", "session.audio.input.turn_detection.eagerness"),
        ),
        (
            {"audio": {"input": {"format": {"type": ["audio/pcm"]}}}},
            ("invalid_type", "session.audio.input.format.type"),
        ),
        ({"type": 7}, ("invalid_type", "session.type")),
        (
            {"audio": {"input": {"format": {"type": "audio/mp3"}}}},
            ("invalid_value", "session.audio.input.format.type"),
        ),
        (
            {"audio": {"input": {"turn_detection": {"type": 7}}}},
            ("invalid_type", "session.audio.input.turn_detection.type"),
        ),
        (
            {"audio": {"input": {"turn_detection": {"eagerness": 7}}}},
            ("invalid_type", "session.audio.input.turn_detection.eagerness"),
        ),
        (
            {"audio": {"output": {"format": {"type": "audio/pcm", "rate": "x"}}}},
            ("invalid_type", "session.audio.output.format.rate"),
        ),
    ],
)
def test_a_session_that_can_not_be_meant(session: dict[str, Any], error: tuple[str, str]) -> None:
    assert refusal({"type": "session.update", "session": session}) == error


def test_a_session_update_needs_a_session() -> None:
    assert refusal({"type": "session.update"}) == ("missing_required_parameter", "session")


# --- partial updates ---------------------------------------------------------------------------


def echoed(*patches: tuple[tuple[str, str], ...]) -> dict[str, str]:
    config = CONFIG
    for fields in patches:
        change = EchoedPatch(fields, merges_below="audio.")
        config = ConfigPatch((("echoed", change),)).apply_to(config)
    return dict(config.echoed)


def test_members_that_are_not_named_stay() -> None:
    first = (("audio.input.transcription", '{"model":"a","of":{"b":1}}'), ("tracing", '{"a":1}'))
    later = (("audio.input.transcription", '{"of":{"c":2}}'), ("tracing", '{"b":1}'))
    now = echoed(first, later)
    assert json.loads(now["audio.input.transcription"]) == {"model": "a", "of": {"b": 1, "c": 2}}
    assert json.loads(now["tracing"]) == {"b": 1}


def test_null_and_a_later_object_replace() -> None:
    name = "audio.input.transcription"
    assert echoed(((name, '{"a":1}'),), ((name, "null"),))[name] == "null"
    assert echoed(((name, "null"),), ((name, '{"a":1}'),))[name] == '{"a":1}'


def detection(*objects: dict[str, Any]) -> TurnDetection | None:
    config = CONFIG
    for each in objects:
        session = {"audio": {"input": {"turn_detection": each}}}
        command = read({"type": "session.update", "session": session})
        assert isinstance(command, SessionConfigured)
        config = command.patch.apply_to(config)
    return config.turn_detection


def test_detection_of_the_same_kind_keeps_what_is_not_named() -> None:
    low = {"type": "semantic_vad", "eagerness": "low"}
    slow = TurnDetection(eagerness="low", silence_duration_ms=1_000, interrupt_response=False)
    assert detection(low, {"type": "semantic_vad", "interrupt_response": False}) == slow
    numbers = {"type": "server_vad", "threshold": 0.8, "silence_duration_ms": 200}
    kept = TurnDetection(threshold=0.8, silence_duration_ms=200, create_response=False)
    assert detection(numbers, {"type": "server_vad", "create_response": False}) == kept


def test_detection_of_another_kind_begins_with_its_own_silence() -> None:
    low = {"type": "semantic_vad", "eagerness": "low"}
    assert detection(low, {"type": "server_vad"}) == TurnDetection()
    numbers = {"type": "server_vad", "silence_duration_ms": 200}
    assert detection(numbers, {"type": "semantic_vad"}) == TurnDetection(eagerness="auto")
