"""What is wrong with an event becomes one refusal that names the fault and the field."""

import json

import pytest

from session.errors import DuplexError
from session.realtime.commands import AudioReceived
from session.realtime.decode import decode, refuse_binary, refuse_oversize
from session.stimuli import EventRefused
from tests.realtime.wire_texts import MAX_BYTES, refused, sent

Fields = dict[str, object]
APPEND = "input_audio_buffer.append"
CREATE = "conversation.item.create"
TRUNCATE = "conversation.item.truncate"
JPEG = "/9j/4AAQ"


def part(**fields: object) -> Fields:
    return {"item": {"type": "message", "role": "user", "content": [fields]}}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "{",
        '{"type": "session.close"',
        "[]",
        "null",
        "7",
        '"session.close"',
        '[{"type": "session.close"}]',
        '{"type": "session.close", "x": NaN}',
        '{"type": "session.close", "x": Infinity}',
        '{"type": "session.close", "x": -Infinity}',
        '{"type": "session.close", "x": 1e999}',
        '{"type": "session.close", "x": ' + "9" * 5_000 + "}",
        '{"type": "session.close", "reason": "\\ud800"}',
        '{"type": "session.close", "reason": "\ud800"}',
        '{"type": "session.close", "x": ' + "[" * 10_000 + "]" * 10_000 + "}",
        '{"type": "session.close", "x": ' + '{"a":' * 10_000 + "1" + "}" * 10_000 + "}",
        '{"type": "session.close", "x": ' + "[" * 64 + "]" * 64 + "}",
        "[" * 100_000,
        "\ufeff{}",
    ],
)
def test_text_that_is_no_json_object_is_one_invalid_json(text: str) -> None:
    assert refused(decode(text, max_bytes=MAX_BYTES)) == ("invalid_json", None)


def test_nesting_up_to_the_limit_is_read() -> None:
    nested = '{"type": "barge_in", "x": ' + "[" * 63 + "]" * 63 + "}"
    assert not isinstance(decode(nested, max_bytes=MAX_BYTES), EventRefused)


def test_of_a_repeated_key_the_last_one_wins() -> None:
    command = decode('{"type": "x", "type": "session.close", "type": "y"}', max_bytes=MAX_BYTES)
    assert refused(command) == ("unknown_event", "type")


def test_pairs_of_surrogates_are_characters() -> None:
    command = decode('{"type": "session.close", "reason": "\\ud83d\\ude00"}', max_bytes=MAX_BYTES)
    assert getattr(command, "reason", None) == "\N{GRINNING FACE}"


@pytest.mark.parametrize("named", [None, 7, "", "session.begin", ["barge_in"], {}, "x" * 9_000])
def test_an_unknown_type_is_refused(named: object) -> None:
    assert refused(sent("x", **{"type": named})) == ("unknown_event", "type")


def test_a_missing_type_is_refused() -> None:
    assert refused(decode("{}", max_bytes=MAX_BYTES)) == ("unknown_event", "type")


# --- fields ----------------------------------------------------------------------------------

MISSING = "missing_required_parameter"
TOO_LONG = "string_above_max_length"
BAD: list[tuple[str, Fields, str, str]] = [
    ("session.update", {"session": []}, "bad_event", "session"),
    ("session.update", {"session": "x"}, "bad_event", "session"),
    ("session.resume", {}, "invalid_session_resume", "session_id"),
    (
        "session.resume",
        {"session_id": "s", "resume_token": 1},
        "invalid_session_resume",
        "resume_token",
    ),
    (
        "session.resume",
        {"session_id": "s", "resume_token": "t", "last_received_server_event_seq": -1},
        "invalid_session_resume",
        "last_received_server_event_seq",
    ),
    ("session.event_ack", {}, "invalid_event_ack", "server_event_seq"),
    ("session.event_ack", {"server_event_seq": True}, "invalid_event_ack", "server_event_seq"),
    ("session.event_ack", {"server_event_seq": 1.5}, "invalid_event_ack", "server_event_seq"),
    ("session.heartbeat", {"event_id": 7}, "bad_event", "event_id"),
    ("session.heartbeat", {"event_id": ""}, "bad_event", "event_id"),
    ("session.heartbeat", {"event_id": "x" * 513}, TOO_LONG, "event_id"),
    ("session.close", {"reason": 1}, "bad_event", "reason"),
    ("session.close", {"reason": "\N{GRINNING FACE}" * 31}, TOO_LONG, "reason"),
    ("input.text.append", {}, MISSING, "text"),
    ("input.text.append", {"text": ["a"]}, "bad_event", "text"),
    ("input.text.append", {"text": "x" * 65_537}, TOO_LONG, "text"),
    ("input_audio_buffer.commit", {"is_speech": "no"}, "bad_event", "is_speech"),
    ("input_audio_buffer.commit", {"response_create": 1}, "bad_event", "response_create"),
    ("input.commit", {"create_response": "yes"}, "bad_event", "create_response"),
    ("input_audio_buffer.clear", {"event_id": []}, "bad_event", "event_id"),
    ("input.cancel", {"event_id": {}}, "bad_event", "event_id"),
    (CREATE, {}, MISSING, "item"),
    (CREATE, {"item": []}, "bad_event", "item"),
    (CREATE, {"item": {}}, MISSING, "item.type"),
    (CREATE, {"item": {"type": "message"}}, MISSING, "item.role"),
    (CREATE, {"item": {"type": "message", "role": "robot"}}, "bad_event", "item.role"),
    (CREATE, {"item": {"type": "message", "role": "user"}}, MISSING, "item.content"),
    (
        CREATE,
        {"item": {"type": "message", "role": "user", "content": []}},
        MISSING,
        "item.content",
    ),
    (
        CREATE,
        {"item": {"type": "message", "role": "user", "content": "hi"}},
        "bad_event",
        "item.content",
    ),
    (CREATE, part(type="input_text"), MISSING, "item.content.0.text"),
    (CREATE, part(type="input_text", text=1), "bad_event", "item.content.0.text"),
    (CREATE, part(type="input_text", text="x" * 65_537), TOO_LONG, "item.content.0.text"),
    (
        CREATE,
        {
            "item": {
                "type": "message",
                "role": "user",
                "content": 2 * [{"type": "input_text", "text": "x" * 65_000}],
            }
        },
        TOO_LONG,
        "item.content",
    ),
    (CREATE, part(type="input_audio"), MISSING, "item.content.0.audio"),
    (CREATE, part(type="input_audio", audio="AAA"), "bad_audio", "item.content.0.audio"),
    (
        CREATE,
        {
            "item": {
                "type": "message",
                "role": "user",
                "content": 2 * [{"type": "input_audio", "audio": "AAAA"}],
            }
        },
        "unsupported_item_content",
        "item.content",
    ),
    (
        CREATE,
        {
            "item": {
                "type": "message",
                "role": "system",
                "content": [{"type": "input_audio", "audio": "AAAA"}],
            }
        },
        "unsupported_item_content",
        "item.content.0.type",
    ),
    (
        CREATE,
        part(type="input_image", image_url="x"),
        "unsupported_item_content",
        "item.content.0.type",
    ),
    (CREATE, {"item": {"type": "function_call"}}, "unsupported_item_content", "item.type"),
    (
        CREATE,
        {"item": {"type": "function_call_output", "output": "x"}},
        "invalid_function_call_output",
        "item.call_id",
    ),
    (
        CREATE,
        {"item": {"type": "function_call_output", "call_id": "x"}},
        "invalid_function_call_output",
        "item.output",
    ),
    ("conversation.item.retrieve", {}, MISSING, "item_id"),
    ("conversation.item.retrieve", {"item_id": 1}, "bad_event", "item_id"),
    ("conversation.item.delete", {"item_id": ""}, "bad_event", "item_id"),
    ("conversation.item.delete", {"item_id": None}, "bad_event", "item_id"),
    (TRUNCATE, {"item_id": "i"}, MISSING, "audio_end_ms"),
    (TRUNCATE, {"audio_end_ms": 1}, MISSING, "item_id"),
    (TRUNCATE, {"item_id": "i", "audio_end_ms": 1234.5}, "invalid_type", "audio_end_ms"),
    (TRUNCATE, {"item_id": "i", "audio_end_ms": "5"}, "invalid_type", "audio_end_ms"),
    (TRUNCATE, {"item_id": "i", "audio_end_ms": True}, "invalid_type", "audio_end_ms"),
    (TRUNCATE, {"item_id": "i", "audio_end_ms": -1}, "bad_event", "audio_end_ms"),
    (
        TRUNCATE,
        {"item_id": "i", "audio_end_ms": 1, "content_index": 0.5},
        "invalid_type",
        "content_index",
    ),
    ("response.create", {"response": []}, "bad_event", "response"),
    ("response.cancel", {"response_id": 5}, "bad_event", "response_id"),
    ("output_audio_buffer.clear", {"response_id": ""}, "bad_event", "response_id"),
    ("barge_in", {"event_id": 1}, "bad_event", "event_id"),
    ("turn.signal", {}, MISSING, "event"),
    ("turn.signal", {"event": "dance"}, "bad_event", "event"),
    ("turn.signal", {"event": {"a": 1}}, "bad_event", "event"),
    ("turn.signal", {"event": "turn.signal"}, "bad_event", "event"),
    ("turn.signal", {"event": "response.cancel", "payload": []}, "bad_event", "payload"),
    (
        "turn.signal",
        {"event": "conversation.item.delete", "payload": {}},
        MISSING,
        "item_id",
    ),
    ("playback.ack", {}, MISSING, "played_ms"),
    ("playback.ack", {"played_ms": None}, "invalid_type", "played_ms"),
    ("playback.ack", {"played_ms": 1000.5}, "invalid_type", "played_ms"),
    ("playback.ack", {"played_ms": "1000"}, "invalid_type", "played_ms"),
    ("playback.ack", {"played_ms": False}, "invalid_type", "played_ms"),
    ("playback.ack", {"played_ms": -1}, "bad_event", "played_ms"),
    ("playback.ack", {"played_ms": 2**53}, "bad_event", "played_ms"),
    ("playback.ack", {"played_ms": 10**400}, "bad_event", "played_ms"),
    ("playback.ack", {"played_ms": 5, "committed_ms": 6}, "bad_event", "committed_ms"),
    ("playback.ack", {"played_ms": 5, "committed_ms": 1.5}, "invalid_type", "committed_ms"),
    (APPEND, {}, MISSING, "audio"),
    (APPEND, {"audio": None}, MISSING, "audio"),
    (APPEND, {"audio": 7}, "bad_event", "audio"),
    (APPEND, {"audio": "AAAA", "format": "mp3"}, "unsupported_audio_format", "format"),
    (APPEND, {"audio": "AAAA", "format": 7}, "unsupported_audio_format", "format"),
    (APPEND, {"audio": "AAAA", "format": {"type": []}}, "unsupported_audio_format", "format"),
    (APPEND, {"audio": "AAAA", "is_speech": 1}, "bad_event", "is_speech"),
    (APPEND, {"audio": "AAAA", "speech": "true"}, "bad_event", "speech"),
    (APPEND, {"audio": "AAAA", "vad": 1}, "bad_event", "vad"),
    (APPEND, {"audio": "AAAA", "vad": {"is_speech": 0}}, "bad_event", "vad.is_speech"),
    (APPEND, {"audio": "AAAA", "speech_probability": 1.5}, "bad_event", "speech_probability"),
    (APPEND, {"audio": "AAAA", "speech_probability": "1"}, "invalid_type", "speech_probability"),
    (APPEND, {"audio": "AAAA", "speech_probability": True}, "invalid_type", "speech_probability"),
    (APPEND, {"audio": "AAAA", "force_listen": "no"}, "bad_event", "force_listen"),
    (APPEND, {"audio": "AAAA", "force_barge_in": 0}, "bad_event", "force_barge_in"),
    (APPEND, {"audio": "AAAA", "overlap_action": "dance"}, "bad_event", "overlap_action"),
    (APPEND, {"audio": "AAAA", "text": 1}, "bad_event", "text"),
    (APPEND, {"audio": "AAAA", "max_slice_nums": 2}, "bad_event", "max_slice_nums"),
    (APPEND, {"video_frames": [JPEG]}, "invalid_input_modality", "audio"),
    (APPEND, {"audio": "", "video_frames": JPEG}, "invalid_video_frames", "video_frames"),
    (APPEND, {"audio": "", "video_frames": [JPEG] * 3}, "invalid_video_frames", "video_frames"),
    (APPEND, {"audio": "", "video_frames": [JPEG, 1]}, "invalid_video_frames", "video_frames.1"),
    (
        APPEND,
        {"audio": "", "video_frames": ["data:image/jpeg;base64," + JPEG]},
        "invalid_video_frames",
        "video_frames.0",
    ),
    (APPEND, {"audio": "", "video_frames": ["R0lGODlh"]}, "invalid_video_frames", "video_frames.0"),
    (APPEND, {"audio": "", "video_frames": [""]}, "invalid_video_frames", "video_frames.0"),
    (
        APPEND,
        {"audio": "", "video_frames": [JPEG + "A" * 3_999_996]},
        "invalid_video_frames",
        "video_frames.0",
    ),
]


@pytest.mark.parametrize(("event_type", "fields", "code", "param"), BAD)
def test_a_wrong_field_is_named(event_type: str, fields: Fields, code: str, param: str) -> None:
    assert refused(sent(event_type, **fields)) == (code, param)


@pytest.mark.parametrize(
    "audio",
    [
        "A",
        "AA",
        "AAA",
        "AAA=A",
        "AA=A",
        "AA AA",
        "AAAA\n",
        " AAAA",
        "_-__",
        "AAAA=",
        "AAAA====",
        "é",
        "AA!A",
    ],
)
def test_audio_must_be_strict_base64(audio: str) -> None:
    assert refused(sent(APPEND, audio=audio)) == ("bad_audio", "audio")


@pytest.mark.parametrize(
    "rate", [16_000.5, 16_000.0, 0, -1, 7_999, 48_001, "24000", True, [16_000], 10**400]
)
def test_a_rate_is_a_whole_number_in_range(rate: object) -> None:
    code = "unsupported_audio_format"
    assert refused(sent(APPEND, audio="", sample_rate_hz=rate)) == (code, "sample_rate_hz")
    named = {"type": "audio/pcm", "rate": rate}
    assert refused(sent(APPEND, audio="", format=named)) == (code, "format.rate")


def test_two_rates_that_differ_are_refused() -> None:
    named = {"type": "audio/pcm", "rate": 24_000}
    command = sent(APPEND, audio="", format=named, sample_rate_hz=16_000)
    assert refused(command) == ("unsupported_audio_format", "sample_rate_hz")


# --- the client's event_id -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event_id", "kept"), [("c-1", "c-1"), ("x" * 512, "x" * 512), ("x" * 513, None), (7, None)]
)
def test_a_refusal_names_the_client_event(event_id: object, kept: str | None) -> None:
    command = sent("playback.ack", event_id=event_id)
    assert isinstance(command, EventRefused)
    assert command.event_id == kept


def test_an_unknown_event_keeps_its_id() -> None:
    command = sent("session.begin", event_id="c-1")
    assert isinstance(command, EventRefused)
    assert command.event_id == "c-1"


# --- size and kind of frame ------------------------------------------------------------------


def test_the_size_limit_counts_bytes() -> None:
    text = json.dumps({"type": "session.close", "reason": "é" * 50}, ensure_ascii=False)
    size = len(text.encode())
    assert not isinstance(decode(text, max_bytes=size), EventRefused)
    assert refused(decode(text, max_bytes=size - 1)) == ("event_too_large", None)


def test_fifteen_mebibytes_are_read() -> None:
    audio = "A" * (15_728_640 - 60) + "A" * 4
    text = json.dumps({"type": APPEND, "audio": audio[: (len(audio) // 4) * 4]})
    assert len(text) <= MAX_BYTES
    assert isinstance(decode(text, max_bytes=MAX_BYTES), AudioReceived)


def test_binary_frames_are_refused() -> None:
    assert refused(refuse_binary()) == ("bad_event", None)


def test_an_oversize_frame_is_refused_without_reading_it() -> None:
    assert refused(refuse_oversize(20_000_000, MAX_BYTES)) == ("event_too_large", None)


def test_every_refusal_is_the_clients_fault() -> None:
    for event_type, fields, _, _ in BAD:
        command = sent(event_type, **fields)
        assert isinstance(command, EventRefused)
        assert isinstance(command.error, DuplexError)
        assert command.error.wire_type == "invalid_request_error"
