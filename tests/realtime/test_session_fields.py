"""The session object of session.update, field by field, and how it changes a session."""

import base64
import json

import pytest

from session.config import (
    AudioEncoding,
    AudioFormat,
    ConfigPatch,
    OverlapPolicy,
    PlaybackCommitPolicy,
    SessionConfig,
    TurnDetection,
    default_config,
)
from session.echoed import ECHO_MAX_BYTES
from session.model_profile import ModelProfile
from session.realtime.readers import MAX_REF_AUDIO_CHARS
from session.realtime.session_fields import MAX_ECHO_BYTES, PRIVATE_KEYS
from session.stimuli import EventRefused, SessionConfigured
from tests.realtime.wire_texts import refused, sent

Fields = dict[str, object]
LONG_RECORDING = "data:audio/wav;base64," + "A" * (MAX_REF_AUDIO_CHARS + 4)
QUIET = default_config("m", ModelProfile())
DETECTING = default_config("m", ModelProfile(default_server_vad=True))


def patch(**session: object) -> ConfigPatch:
    command = sent("session.update", session=session)
    assert isinstance(command, SessionConfigured), command
    return command.patch


def after(config: SessionConfig, **session: object) -> SessionConfig:
    """Return the settings that `config` becomes by a session.update."""
    return patch(**session).apply_to(config)


def nested(side: str, **fields: object) -> Fields:
    return {"audio": {side: fields}}


# --- one field at a time ---------------------------------------------------------------------

PCM_24K = AudioFormat(AudioEncoding.PCM16, 24_000)
ULAW = AudioFormat(AudioEncoding.G711_ULAW, 8_000)
FIELDS: list[tuple[Fields, str, object]] = [
    ({"model": "other"}, "model", "other"),
    ({"modalities": ["audio", "text"]}, "output_modalities", ("audio", "text")),
    ({"output_modalities": ["text", "text"]}, "output_modalities", ("text",)),
    ({"instructions": "be brief"}, "instructions", "be brief"),
    ({"instructions": None}, "instructions", None),
    ({"voice": "alto"}, "voice", "alto"),
    ({"voice": {"id": "voice_1"}}, "voice", "voice_1"),
    (nested("output", voice="alto"), "voice", "alto"),
    ({"temperature": 1}, "temperature", 1.0),
    ({"temperature": None}, "temperature", None),
    ({"max_output_tokens": "inf"}, "max_output_tokens", None),
    ({"max_response_output_tokens": 7}, "max_output_tokens", 7),
    ({"max_tokens": 8.0}, "max_output_tokens", 8),
    ({"speed": 1.5}, "speed", 1.5),
    (nested("output", speed=0.25), "speed", 0.25),
    ({"idle_timeout_s": 60}, "idle_timeout_s", 60.0),
    ({"overlap_short_ack_ms": 0}, "overlap_short_ack_ms", 0),
    ({"overlap_barge_in_ms": 900}, "overlap_barge_in_ms", 900),
    ({"overlap_silence_rms": 0.01}, "overlap_silence_rms", 0.01),
    ({"extra_body": {"overlap_silence_rms": 1}}, "overlap_silence_rms", 1.0),
    ({"overlap_policy": "barge_in_on_speech"}, "overlap_policy", OverlapPolicy.BARGE_IN_ON_SPEECH),
    (
        {"playback_commit_policy": "commit_all_on_done"},
        "playback_commit_policy",
        PlaybackCommitPolicy.COMMIT_ALL_ON_DONE,
    ),
    (
        {"extra_body": {"playback_commit_policy": "ack_only"}},
        "playback_commit_policy",
        PlaybackCommitPolicy.ACK_ONLY,
    ),
    ({"extra_body": {"auto_response": True}}, "auto_response", True),
    ({"extra_body": {"auto_response": False}}, "auto_response", False),
    ({"extra_body": {"force_listen_count": 3}}, "force_listen_count", 3),
    ({"input_audio_format": "g711_ulaw"}, "input_format", ULAW),
    (nested("input", format={"type": "audio/pcm", "rate": 24_000}), "input_format", PCM_24K),
    (nested("input", sample_rate_hz=24_000), "input_format", PCM_24K),
    ({"sample_rate": 24_000}, "input_format", PCM_24K),
    ({"output_audio_format": "pcm"}, "output_format", PCM_24K),
    ({"response_format": "wav"}, "output_format", AudioFormat(AudioEncoding.WAV, 24_000)),
    (nested("output", format={"type": "audio/pcmu"}), "output_format", ULAW),
    (nested("output", sample_rate_hz=24_000), "output_format", PCM_24K),
    (
        {"ref_audio": "data:audio/wav;base64,UklGRg=="},
        "ref_audio",
        b"RIFF",
    ),
    ({"extra_body": {"tts_ref_audio": "data:audio/wav;base64,UklGRg=="}}, "ref_audio", b"RIFF"),
]


@pytest.mark.parametrize(("session", "field", "value"), FIELDS)
def test_a_field_sets_its_setting_and_no_other(session: Fields, field: str, value: object) -> None:
    changed = after(QUIET, **session)
    assert getattr(changed, field) == value
    others = set(SessionConfig.__slots__) - {field}
    assert [n for n in sorted(others) if getattr(changed, n) != getattr(QUIET, n)] == []


def test_null_says_nothing_where_it_is_no_value() -> None:
    silent = {
        "model": None,
        "modalities": None,
        "overlap_policy": None,
        "idle_timeout_s": None,
        "input_audio_format": None,
        "ref_audio": None,
        "audio": {"input": None, "output": {"format": None}},
        "extra_body": None,
    }
    assert patch(**silent) == ConfigPatch()


def test_an_empty_update_changes_nothing() -> None:
    assert after(DETECTING) == DETECTING


def test_the_most_specific_name_counts() -> None:
    both = {"voice": "flat", **nested("output", voice="nested")}
    assert after(QUIET, **both).voice == "nested"


BAD: list[tuple[Fields, str, str]] = [
    ({"type": "transcription"}, "bad_event", "type"),
    ({"model": 5}, "bad_event", "model"),
    ({"modalities": ["video"]}, "unsupported_response_modality", "modalities"),
    ({"modalities": ["text", "image"]}, "unsupported_response_modality", "modalities"),
    ({"output_modalities": []}, "unsupported_response_modality", "output_modalities"),
    ({"output_modalities": "text"}, "unsupported_response_modality", "output_modalities"),
    ({"output_modalities": [["text"]]}, "unsupported_response_modality", "output_modalities"),
    ({"instructions": 5}, "bad_event", "instructions"),
    ({"instructions": "x" * 65_537}, "string_above_max_length", "instructions"),
    ({"voice": 5}, "bad_event", "voice"),
    ({"voice": {}}, "bad_event", "voice"),
    ({"temperature": "1"}, "invalid_type", "temperature"),
    ({"temperature": True}, "invalid_type", "temperature"),
    ({"temperature": 2.1}, "bad_event", "temperature"),
    ({"temperature": 10**400}, "bad_event", "temperature"),
    ({"max_output_tokens": 0}, "bad_event", "max_output_tokens"),
    ({"max_output_tokens": 1.5}, "invalid_type", "max_output_tokens"),
    ({"max_output_tokens": "many"}, "invalid_type", "max_output_tokens"),
    ({"speed": 0.1}, "bad_event", "speed"),
    ({"idle_timeout_s": 0}, "bad_event", "idle_timeout_s"),
    ({"overlap_policy": "shout"}, "bad_event", "overlap_policy"),
    ({"overlap_policy": []}, "bad_event", "overlap_policy"),
    ({"overlap_short_ack_ms": 0.5}, "invalid_type", "overlap_short_ack_ms"),
    ({"overlap_silence_rms": -1}, "bad_event", "overlap_silence_rms"),
    ({"playback_commit_policy": "never"}, "bad_event", "playback_commit_policy"),
    ({"extra_body": []}, "bad_event", "extra_body"),
    ({"audio": "loud"}, "bad_event", "audio"),
    (nested("input", format="mp3"), "unsupported_audio_format", "audio.input.format"),
    ({"audio": {"output": 1}}, "bad_event", "audio.output"),
    ({"extra_body": {"auto_response": 1}}, "bad_event", "extra_body.auto_response"),
    ({"extra_body": {"force_listen_count": -1}}, "bad_event", "extra_body.force_listen_count"),
    ({"input_audio_format": "mp3"}, "unsupported_audio_format", "input_audio_format"),
    ({"sample_rate_hz": 16_000.5}, "unsupported_audio_format", "sample_rate_hz"),
    ({"sample_rate_hz": "24000"}, "unsupported_audio_format", "sample_rate_hz"),
    (
        {"input_audio_format": {"type": "audio/pcm", "rate": 24_000}, "sample_rate_hz": 16_000},
        "unsupported_audio_format",
        "sample_rate_hz",
    ),
    ({"output_audio_format": "pcm_f32le"}, "unsupported_audio_format", "output_audio_format"),
    (
        {"output_audio_format": {"type": "audio/pcm", "rate": 16_000}},
        "unsupported_audio_format",
        "output_audio_format",
    ),
    (
        nested("output", sample_rate_hz=8_000),
        "unsupported_audio_format",
        "audio.output.sample_rate_hz",
    ),
    ({"ref_audio": "/etc/passwd"}, "unsupported_ref_audio_path", "ref_audio"),
    ({"ref_audio": LONG_RECORDING}, "string_above_max_length", "ref_audio"),
    ({"turn_detection": "server_vad"}, "unsupported_turn_detection", "turn_detection"),
    ({"ref_audio": "file:///etc/passwd"}, "unsupported_ref_audio_path", "ref_audio"),
    ({"ref_audio": "http://host/a.wav"}, "unsupported_ref_audio_path", "ref_audio"),
    ({"ref_audio": 5}, "unsupported_ref_audio_path", "ref_audio"),
    ({"ref_audio": "data:audio/wav;base64,UklGRg"}, "bad_audio", "ref_audio"),
    ({"ref_audio_path": "/a.wav"}, "unsupported_ref_audio_path", "ref_audio_path"),
    (
        {"extra_body": {"tts_ref_audio_path": "/a.wav"}},
        "unsupported_ref_audio_path",
        "extra_body.tts_ref_audio_path",
    ),
    (
        {"extra_body": {"initial_user_text": "x"}},
        "invalid_duplex_runtime_config",
        "extra_body.initial_user_text",
    ),
]


@pytest.mark.parametrize(("session", "code", "param"), BAD)
def test_a_wrong_setting_is_named(session: Fields, code: str, param: str) -> None:
    assert refused(sent("session.update", session=session)) == (code, f"session.{param}")
    if "type" not in session:
        assert refused(sent("session.update", **session)) == (code, param)


@pytest.mark.parametrize("key", sorted(PRIVATE_KEYS))
def test_a_private_key_is_refused_wherever_it_stands(key: str) -> None:
    code = "invalid_duplex_runtime_config"
    assert refused(sent("session.update", session={key: 1})) == (code, f"session.{key}")
    inside = sent("session.update", session={"extra_body": {key: None}})
    assert refused(inside) == (code, f"session.extra_body.{key}")


@pytest.mark.parametrize("key", ["ref_audio_path", "ref_audio_data"])
def test_a_long_name_is_not_kept_for_its_refusal(key: str) -> None:
    command = sent("session.update", session={"n" * 100_000 + "." + key: 1})
    assert isinstance(command, EventRefused)
    assert len(command.error.message) + len(command.error.param or "") < 1_000


def test_one_wrong_setting_refuses_the_whole_update() -> None:
    assert refused(sent("session.update", session={"voice": "alto", "speed": 9}))


# --- partial formats -------------------------------------------------------------------------


def test_a_rate_alone_keeps_the_encoding() -> None:
    floats = after(QUIET, input_audio_format="pcm_f32le")
    changed = after(floats, sample_rate_hz=48_000)
    assert changed.input_format == AudioFormat(AudioEncoding.PCM_F32LE, 48_000)


def test_an_encoding_alone_keeps_the_rate_only_if_it_is_the_same_one() -> None:
    fast = after(QUIET, sample_rate_hz=48_000)
    assert after(fast, input_audio_format="pcm16") == fast
    assert after(fast, input_audio_format="g711_alaw").input_format.rate_hz == 8_000


# --- turn detection --------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["flat", "nested"])
def test_detection_switches_on_with_defaults(where: str) -> None:
    detection = {"type": "server_vad"}
    session = (
        nested("input", turn_detection=detection)
        if where == "nested"
        else {"turn_detection": detection}
    )
    changed = after(QUIET, **session)
    assert changed.turn_detection == TurnDetection()
    assert changed.overlap_policy is OverlapPolicy.BARGE_IN_ON_SPEECH


def test_null_switches_detection_off() -> None:
    changed = after(DETECTING, turn_detection=None)
    assert changed.turn_detection is None
    assert changed.overlap_policy is OverlapPolicy.LISTEN_ONLY


def test_a_partial_detection_keeps_the_rest() -> None:
    set_up = after(
        DETECTING,
        turn_detection={
            "type": "server_vad",
            "silence_duration_ms": 900,
            "interrupt_response": False,
        },
    )
    changed = after(set_up, turn_detection={"threshold": 0.8})
    assert changed.turn_detection == TurnDetection(
        threshold=0.8, silence_duration_ms=900, interrupt_response=False
    )
    assert changed.overlap_policy is OverlapPolicy.LISTEN_ONLY


def test_every_field_of_detection_is_read() -> None:
    detection = {
        "type": "server_vad",
        "threshold": 1,
        "prefix_padding_ms": 0,
        "silence_duration_ms": 1.0,
        "min_speech_duration_ms": 32,
        "create_response": False,
        "interrupt_response": False,
        "interrupt_confidence": 0.5,
        "idle_timeout_ms": 5_000,
    }
    expected = TurnDetection(1.0, 0, 1, 32, False, False, 0.5, 5_000)
    assert after(QUIET, turn_detection=detection).turn_detection == expected
    again = after(after(QUIET, turn_detection=detection), turn_detection={"idle_timeout_ms": None})
    assert again.turn_detection == TurnDetection(1.0, 0, 1, 32, False, False, 0.5, None)


@pytest.mark.parametrize(
    ("eagerness", "silence_ms"),
    [("low", 1_000), ("medium", 500), ("high", 300), ("auto", 500), (None, 500)],
)
def test_semantic_vad_is_mapped(eagerness: str | None, silence_ms: int) -> None:
    detection = {"type": "semantic_vad", "eagerness": eagerness, "create_response": False}
    changed = after(QUIET, turn_detection=detection)
    assert changed.turn_detection == TurnDetection(
        silence_duration_ms=silence_ms, create_response=False
    )


@pytest.mark.parametrize(
    ("detection", "param"),
    [
        ("server_vad", ""),
        ([], ""),
        ({"type": "client_vad"}, ".type"),
        ({"type": 5}, ".type"),
        ({"type": "server_vad", "eagerness": "low"}, ".eagerness"),
        ({"type": "semantic_vad", "eagerness": "wild"}, ".eagerness"),
        ({"type": "semantic_vad", "eagerness": []}, ".eagerness"),
        ({"threshold": 0.15}, ".threshold"),
        ({"threshold": 1.01}, ".threshold"),
        ({"threshold": "0.5"}, ".threshold"),
        ({"prefix_padding_ms": -1}, ".prefix_padding_ms"),
        ({"silence_duration_ms": 500.5}, ".silence_duration_ms"),
        ({"silence_duration_ms": 0}, ".silence_duration_ms"),
        ({"min_speech_duration_ms": True}, ".min_speech_duration_ms"),
        ({"create_response": 1}, ".create_response"),
        ({"interrupt_response": "no"}, ".interrupt_response"),
        ({"idle_timeout_ms": 1}, ".idle_timeout_ms"),
        ({"sensitivity": 3}, ".sensitivity"),
    ],
)
def test_wrong_detection_is_refused(detection: object, param: str) -> None:
    command = sent("session.update", session={"turn_detection": detection})
    assert refused(command) == ("unsupported_turn_detection", f"session.turn_detection{param}")


@pytest.mark.parametrize(
    ("detection", "policy"),
    [
        (None, "barge_in_on_speech"),
        ({"type": "server_vad"}, "listen_only"),
        ({"interrupt_response": True}, "listen_only"),
        ({"interrupt_response": False}, "barge_in_on_speech"),
    ],
)
def test_a_policy_that_contradicts_detection_is_refused(detection: object, policy: str) -> None:
    session = {"turn_detection": detection, "overlap_policy": policy}
    assert refused(sent("session.update", session=session)) == (
        "bad_event",
        "session.overlap_policy",
    )


@pytest.mark.parametrize(
    ("detection", "policy"),
    [
        (None, "listen_only"),
        ({"type": "server_vad"}, "barge_in_on_speech"),
        ({"interrupt_response": False}, "listen_only"),
    ],
)
def test_a_policy_that_agrees_is_accepted(detection: object, policy: str) -> None:
    changed = after(QUIET, turn_detection=detection, overlap_policy=policy)
    assert changed.overlap_policy.value == policy
    assert changed.conflict == ""


def test_a_lone_policy_that_contradicts_shows_as_a_conflict() -> None:
    assert QUIET.conflict == ""
    assert DETECTING.conflict == ""
    assert "overlap_policy" in after(QUIET, overlap_policy="barge_in_on_speech").conflict
    assert "overlap_policy" in after(DETECTING, overlap_policy="listen_only").conflict


# --- what is only echoed ---------------------------------------------------------------------


def test_fields_that_nobody_uses_are_echoed() -> None:
    changed = after(
        QUIET,
        tracing="auto",
        tools=[],
        audio={"input": {"noise_reduction": {"type": "near_field"}}},
        extra_body={"native_duplex": True, "window": 3},
    )
    assert dict(changed.echoed) == {
        "tracing": '"auto"',
        "tools": "[]",
        "audio.input.noise_reduction": '{"type":"near_field"}',
        "extra_body": '{"window":3}',
    }


def test_what_the_server_says_of_a_session_is_not_taken_from_a_client() -> None:
    own = {"id": "sess_mine", "object": "realtime.session", "state": "open", "type": "realtime"}
    assert patch(**own, capabilities={}, epoch=7, playback={}) == ConfigPatch()


def test_an_echo_is_replaced_by_name_and_kept_otherwise() -> None:
    changed = after(after(QUIET, tracing="auto", include=["a"]), tracing=None)
    assert dict(changed.echoed) == {"include": '["a"]', "tracing": "null"}


def test_a_field_too_large_to_echo_is_accepted_and_dropped() -> None:
    assert patch(prompt="x" * (MAX_ECHO_BYTES - 1)) == ConfigPatch()
    assert patch(**{"n" * 300: 1}) == ConfigPatch()
    assert after(QUIET, prompt="x" * (MAX_ECHO_BYTES - 2)).echoed


def test_the_echo_stays_bounded_and_newer_fields_win() -> None:
    config = QUIET
    for number in range(6):
        config = after(config, **{f"field_{number}": "x" * 20_000})
    assert [name for name, _ in config.echoed] == ["field_3", "field_4", "field_5"]
    assert sum(len(name) + len(text) for name, text in config.echoed) <= ECHO_MAX_BYTES


def test_an_echo_is_measured_as_it_is_sent() -> None:
    quarter = MAX_ECHO_BYTES // 4
    assert patch(prompt="\U0001f600" * quarter) == ConfigPatch()
    config = QUIET
    for number in range(9):
        config = after(config, **{f"field_{number}": "\U0001f600" * (quarter - 1)})
    assert [name for name, _ in config.echoed] == ["field_8"]


def test_an_echo_is_json() -> None:
    ((_, text),) = after(QUIET, metadata={"é": [1, None, {"a": 0.5}]}).echoed
    assert json.loads(text) == {"é": [1, None, {"a": 0.5}]}


def test_a_recording_is_not_shown_in_logs() -> None:
    recording = base64.b64encode(b"secret voice").decode()
    config = after(QUIET, ref_audio=f"data:audio/wav;base64,{recording}")
    assert config.ref_audio == b"secret voice"
    assert "secret" not in repr(config)
