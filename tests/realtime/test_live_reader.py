"""The live wire's way in: strict, one session a socket, and nothing before its start."""

import base64
import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session.config import AudioEncoding, AudioFormat, ConfigPatch, SessionConfig
from session.context import ContextMessage
from session.echoed import EchoedPatch
from session.model_profile import ModelProfile
from session.realtime.commands import AudioReceived, Command
from session.realtime.live.client_events import COMMANDS, REFUSAL_CODES
from session.realtime.live.reader import LiveReader
from session.realtime.live.session_config import live_defaults
from session.realtime.opening import ClientHabits
from session.stimuli import CloseRequested, EventRefused, SessionConfigured
from session.stream_stimuli import ContextAppended, ContextUse, InputMuteSet

LIMIT = 1_000_000


def read(reader: LiveReader, kind: str, **fields: Any) -> Command:
    return reader.decode(json.dumps({"type": kind, **fields}), max_bytes=LIMIT)


def refused(command: Command) -> tuple[str, str | None]:
    """Return the code and the parameter of a refusal."""
    assert isinstance(command, EventRefused), command
    return command.error.wire_code, command.error.param


def fresh() -> LiveReader:
    return LiveReader(ClientHabits())


def started(**session: Any) -> LiveReader:
    """Return a reader whose session has been started."""
    reader = fresh()
    command = read(reader, "session.start", session={"model": "gpt-live-1"} | session)
    assert isinstance(command, SessionConfigured), command
    return reader


def start(**session: Any) -> Command:
    fields = {"model": "gpt-live-1"} | session
    return read(fresh(), "session.start", session=fields, event_id="c-1")


def settings(command: Command) -> SessionConfig:
    """Return what the settings of a session become."""
    assert isinstance(command, SessionConfigured)
    return command.patch.apply_to(live_defaults("scripted", ModelProfile()))


# --- session.start ------------------------------------------------------------------------------


def test_a_start_that_names_its_model_alone_has_the_defaults() -> None:
    config = settings(start())
    assert config.model == "scripted"
    assert config.input_format == config.output_format
    assert config.input_format == AudioFormat(AudioEncoding.PCM16, 24_000)
    assert config.auto_response
    assert config.counts_input
    assert config.turn_detection is not None
    assert config.conflict == ""
    assert config.output_modalities == ("audio",)


@pytest.mark.parametrize(
    ("kind", "rate", "encoding"),
    [
        ("audio/pcm", 16_000, AudioEncoding.PCM16),
        ("audio/pcm", 24_000, AudioEncoding.PCM16),
        ("audio/pcmu", 8_000, AudioEncoding.G711_ULAW),
        ("audio/pcma", 8_000, AudioEncoding.G711_ALAW),
    ],
)
def test_one_format_holds_both_ways(kind: str, rate: int, encoding: AudioEncoding) -> None:
    config = settings(start(audio={"format": {"type": kind, "rate": rate}}))
    assert config.input_format == config.output_format == AudioFormat(encoding, rate)


def test_everything_that_a_start_may_say_is_read() -> None:
    command = start(
        instructions="Be brief.",
        audio={"output": {"voice": {"id": "voice_1"}}},
        delegation={"type": "client", "acknowledgement_delay_ms": 400},
        input=[
            {"role": "developer", "content": [{"type": "input_text", "text": "The shop is shut."}]},
            {"role": "user", "content": [{"text": "Hello."}], "id": "m1", "status": "completed"},
            {"role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]},
            {"role": "assistant", "content": [{"type": "text", "text": "Well?"}]},
        ],
        safety_identifier="user-1",
        store=False,
        triggers=[],
        client=None,
    )
    assert isinstance(command, SessionConfigured)
    assert command.event_id == "c-1"
    config = settings(command)
    assert config.instructions == "Be brief."
    assert config.voice == "voice_1"
    assert config.opening_messages == (
        ContextMessage("system", "The shop is shut."),
        ContextMessage("user", "Hello."),
        ContextMessage("assistant", "Hi."),
        ContextMessage("assistant", "Well?"),
    )
    echoed = {name: json.loads(text) for name, text in config.echoed}
    assert echoed["delegation"] == {"type": "client", "acknowledgement_delay_ms": 400}
    assert echoed["safety_identifier"] == "user-1"
    assert echoed["input"][1] == {
        "role": "user", "content": [{"text": "Hello."}], "id": "m1", "status": "completed",
    }  # fmt: skip
    assert echoed["store"] is False
    assert echoed["triggers"] == []


def test_what_is_null_or_very_long_is_not_said_back() -> None:
    long = [{"role": "user", "content": [{"text": "x" * 40_000}]}]
    config = settings(start(input=long, delegation=None, audio={"output": {}}))
    assert config.echoed == ()
    assert config.voice is None
    assert len(config.opening_messages[0].text) == 40_000


def test_blank_instructions_are_the_servers() -> None:
    assert settings(start(instructions=" \n")).instructions is None


@pytest.mark.parametrize(
    ("session", "code", "param"),
    [
        ({"model": None}, "invalid_type", "session.model"),
        ({"voice": "marin"}, "unknown_parameter", "session.voice"),
        ({"audio": {"input": {}}}, "unknown_parameter", "session.audio.input"),
        (
            {"audio": {"format": {"type": "audio/pcm", "rate": 24_000, "channels": 1}}},
            "unknown_parameter",
            "session.audio.format.channels",
        ),
        (
            {"audio": {"output": {"speed": 1.0}}},
            "unknown_parameter",
            "session.audio.output.speed",
        ),
        (
            {"audio": {"format": {"type": "audio/pcm", "rate": 8_000}}},
            "invalid_value",
            "session.audio.format.rate",
        ),
        (
            {"audio": {"format": {"type": "audio/pcmu", "rate": 24_000}}},
            "invalid_value",
            "session.audio.format.rate",
        ),
        (
            {"audio": {"format": {"type": "audio/opus", "rate": 24_000}}},
            "invalid_value",
            "session.audio.format.type",
        ),
        (
            {"audio": {"format": {"type": "audio/pcm", "rate": "24000"}}},
            "invalid_type",
            "session.audio.format.rate",
        ),
        (
            {"audio": {"format": {"type": "audio/pcm"}}},
            "missing_required_parameter",
            "session.audio.format.rate",
        ),
        ({"audio": "loud"}, "invalid_type", "session.audio"),
        ({"audio": {"output": {"voice": 7}}}, "bad_event", "session.audio.output.voice"),
        ({"instructions": 7}, "invalid_type", "session.instructions"),
        (
            {"instructions": "x" * 65_537},
            "string_above_max_length",
            "session.instructions",
        ),
        (
            {"delegation": {"type": "responses", "responses": {"model": "m"}}},
            "unsupported_delegation",
            "session.delegation.type",
        ),
        (
            {"delegation": {"type": "decisions", "decisions": {}}},
            "unsupported_delegation",
            "session.delegation.type",
        ),
        (
            {"delegation": {"type": "client", "responses": {}}},
            "unknown_parameter",
            "session.delegation.responses",
        ),
        ({"delegation": {"type": "me"}}, "invalid_value", "session.delegation.type"),
        ({"store": True}, "unsupported_option", "session.store"),
        ({"client": {"data_channel": {}}}, "unsupported_option", "session.client"),
        ({"triggers": [{"type": "decisions"}]}, "unsupported_option", "session.triggers"),
        (
            {"input": [{"role": "user", "content": []}]},
            "invalid_value",
            "session.input.0.content",
        ),
        (
            {"input": [{"role": "tool", "content": [{"text": "x"}]}]},
            "invalid_value",
            "session.input.0.role",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "output_text", "text": "x"}]}]},
            "invalid_value",
            "session.input.0.content.0.type",
        ),
        (
            {"input": [{"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}]},
            "invalid_value",
            "session.input.0.content.0.type",
        ),
        (
            {"input": [{"role": "user", "content": [{"text": "x"}]}] * 129},
            "array_above_max_length",
            "session.input",
        ),
    ],
)
def test_a_start_that_is_wrong_is_refused_by_its_path(
    session: dict[str, Any], code: str, param: str
) -> None:
    command = start(**session)
    assert refused(command) == (code, param)
    assert isinstance(command, EventRefused)
    assert command.event_id == "c-1"


def test_a_start_without_a_session_or_a_model_is_refused() -> None:
    assert refused(read(fresh(), "session.start")) == ("missing_required_parameter", "session")
    bare = read(fresh(), "session.start", session={})
    assert refused(bare) == ("missing_required_parameter", "session.model")


@pytest.mark.parametrize("kind", ["session.input_audio.append", *COMMANDS, *REFUSAL_CODES])
def test_nothing_comes_before_the_start(kind: str) -> None:
    reader = fresh()
    assert refused(read(reader, kind, audio="")) == ("session_not_started", None)
    after = read(reader, "session.start", session={"model": "m"})
    assert isinstance(after, SessionConfigured)


def test_a_start_that_was_refused_may_be_said_again() -> None:
    reader = fresh()
    wrong = {"model": "m", "audio": {"format": {"type": "audio/pcm", "rate": 1}}}
    assert refused(read(reader, "session.start", session=wrong))[0] == "invalid_value"
    assert isinstance(read(reader, "session.start", session={"model": "m"}), SessionConfigured)


def test_a_session_is_started_once() -> None:
    again = read(started(), "session.start", session={"model": "m"})
    assert refused(again) == ("session_already_started", None)


# --- audio --------------------------------------------------------------------------------------


def test_audio_is_taken_in_the_sessions_format() -> None:
    sound = bytes(range(200))
    command = read(started(), "session.input_audio.append", audio=base64.b64encode(sound).decode())
    assert isinstance(command, AudioReceived)
    assert (command.data, command.format) == (sound, None)


@pytest.mark.parametrize(
    ("kind", "rate", "silence"),
    [
        ("audio/pcm", 16_000, b"\x00"),
        ("audio/pcmu", 8_000, b"\xff"),
        ("audio/pcma", 8_000, b"\xd5"),
    ],
)
def test_while_muted_audio_is_silence_of_the_same_length(
    kind: str, rate: int, silence: bytes
) -> None:
    reader = started(audio={"format": {"type": kind, "rate": rate}})
    loud = base64.b64encode(bytes(range(100))).decode()
    assert read(reader, "session.input_audio.mute", event_id="c") == InputMuteSet(True, "c")
    muted = read(reader, "session.input_audio.append", audio=loud)
    assert isinstance(muted, AudioReceived)
    assert muted.data == silence * 100
    assert read(reader, "session.input_audio.unmute") == InputMuteSet(False, None)
    heard = read(reader, "session.input_audio.append", audio=loud)
    assert isinstance(heard, AudioReceived)
    assert heard.data == bytes(range(100))


def test_audio_that_is_not_base64_is_refused_even_while_muted() -> None:
    reader = started()
    read(reader, "session.input_audio.mute")
    assert refused(read(reader, "session.input_audio.append", audio="??")) == ("bad_audio", "audio")


# --- the rest -----------------------------------------------------------------------------------


@pytest.mark.parametrize("use", list(ContextUse))
def test_a_text_for_the_model_is_read(use: ContextUse) -> None:
    kind = f"session.{use.value}.append"
    command = read(started(), kind, content="Sold out.", delegation_id=None, event_id="c-9")
    assert command == ContextAppended(use, "Sold out.", "c-9")


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"content": "x"}, "missing_required_parameter", "delegation_id"),
        ({"content": "x", "delegation_id": "d1"}, "delegation_not_found", "delegation_id"),
        ({"content": " ", "delegation_id": None}, "invalid_value", "content"),
        ({"content": "x" * 4_001, "delegation_id": None}, "string_above_max_length", "content"),
        ({"content": "x", "delegation_id": None, "role": "u"}, "unknown_parameter", "role"),
    ],
)
def test_a_text_that_can_not_be_taken_is_refused(
    fields: dict[str, Any], code: str, param: str
) -> None:
    assert refused(read(started(), "session.thinking.append", **fields)) == (code, param)


def test_an_update_names_what_may_change() -> None:
    delegation = {"type": "client", "acknowledgement_delay_ms": 0}
    command = read(started(), "session.update", session={"delegation": delegation}, event_id="u")
    echoed = EchoedPatch((("delegation", '{"type":"client","acknowledgement_delay_ms":0}'),))
    assert command == SessionConfigured(ConfigPatch((("echoed", echoed),)), "u")
    assert read(started(), "session.update", session={}) == SessionConfigured(ConfigPatch())


@pytest.mark.parametrize("name", ["model", "instructions", "audio", "input", "tools"])
def test_an_update_of_anything_else_is_refused(name: str) -> None:
    command = read(started(), "session.update", session={name: None})
    assert refused(command) == ("unknown_parameter", f"session.{name}")


def test_a_close_lets_the_answer_come_to_its_end() -> None:
    command = read(started(), "session.close", event_id="bye")
    assert command == CloseRequested("client_close", "bye", drain_s=10.0)


@pytest.mark.parametrize(("kind", "code"), REFUSAL_CODES.items())
def test_what_this_server_can_not_do_is_refused_by_name(kind: str, code: str) -> None:
    command = read(started(), kind, item={"type": "message"}, event_id="c-4")
    assert refused(command) == (code, "type")
    assert isinstance(command, EventRefused)
    assert command.event_id == "c-4"


@pytest.mark.parametrize("kind", ["input_audio_buffer.append", "session.nope", "", "error"])
def test_events_of_other_wires_are_unknown(kind: str) -> None:
    assert refused(read(started(), kind)) == ("unknown_event", "type")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"type": 7}', '{"type": ["session.start"]}'])
def test_what_is_no_event_is_refused(text: str) -> None:
    code, _ = refused(fresh().decode(text, max_bytes=LIMIT))
    assert code in {"invalid_json", "unknown_event"}


def test_an_event_that_is_too_large_is_refused() -> None:
    assert refused(fresh().decode("x" * 11, max_bytes=10))[0] == "event_too_large"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
KINDS = st.sampled_from(
    ["session.start", "session.input_audio.append", *COMMANDS, *REFUSAL_CODES, "nope"]
)
NAMES = ["session", "audio", "content", "delegation_id", "event_id", "model", "input", "format"]


@given(
    st.lists(st.tuples(KINDS, st.dictionaries(st.sampled_from(NAMES), JSON)), max_size=4),
    st.booleans(),
)
def test_whatever_comes_is_exactly_one_command(
    events: list[tuple[str, dict[str, Any]]], is_started: bool
) -> None:
    reader = started() if is_started else fresh()
    for kind, fields in events:
        assert isinstance(read(reader, kind, **fields), get_args(Command))
