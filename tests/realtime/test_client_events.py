"""Every client event, as it should come: what it turns into."""

import pytest

from session.config import AudioEncoding, AudioFormat, ConfigPatch, ResponseOptions
from session.ids import ItemId, ResponseId, SessionId
from session.realtime.commands import AudioReceived, Command, ItemReceived, SessionResumeAsked
from session.realtime.decode import ALIASES, CLIENT_EVENTS
from session.socket_stimuli import EventAcked
from session.stimuli import (
    BargedIn,
    CloseRequested,
    HeartbeatReceived,
    InputCancelled,
    InputCleared,
    InputCommitted,
    ItemCreated,
    ItemDeleted,
    ItemRetrieved,
    ItemTruncated,
    OutputClearRequested,
    PlaybackAcked,
    ResponseCancelRequested,
    ResponseRequested,
    SessionConfigured,
    TextAppended,
    TurnSignalled,
)
from tests.realtime.wire_texts import sent

Fields = dict[str, object]
RESPONSE = ResponseId("resp_a")
ITEM = ItemId("item_a")
MESSAGE: Fields = {
    "type": "message",
    "role": "user",
    "content": [{"type": "input_text", "text": "a"}, {"type": "text", "text": "b"}],
}
SPOKEN = {
    "type": "message",
    "role": "user",
    "content": [{"type": "input_audio", "audio": "AAEC"}, {"type": "input_text", "text": "a"}],
}
OUTPUT: Fields = {"type": "function_call_output", "call_id": "call_1", "output": "{}"}

GOOD: list[tuple[str, Fields, Command]] = [
    ("session.update", {"session": {}}, SessionConfigured(ConfigPatch(), "c-1")),
    (
        "session.update",
        {"session": {"voice": "alto"}},
        SessionConfigured(ConfigPatch((("voice", "alto"),)), "c-1"),
    ),
    (
        "session.update",
        {"voice": "alto"},
        SessionConfigured(ConfigPatch((("voice", "alto"),)), "c-1"),
    ),
    (
        "session.resume",
        {"session_id": "s", "resume_token": "t"},
        SessionResumeAsked(SessionId("s"), "t", 0, "c-1"),
    ),
    (
        "session.resume",
        {"session_id": "s", "resume_token": "t", "last_received_server_event_seq": 7},
        SessionResumeAsked(SessionId("s"), "t", 7, "c-1"),
    ),
    ("session.event_ack", {"server_event_seq": 0}, EventAcked(0, "c-1")),
    ("session.heartbeat", {}, HeartbeatReceived("c-1")),
    ("session.close", {}, CloseRequested("client_close", "c-1")),
    ("session.close", {"reason": None}, CloseRequested("client_close", "c-1")),
    ("session.close", {"reason": "bye"}, CloseRequested("bye", "c-1")),
    ("input.text.append", {"text": "hi"}, TextAppended("hi", "c-1")),
    ("input_audio_buffer.commit", {}, InputCommitted(None, None, "c-1")),
    ("input_audio_buffer.commit", {"final": False}, InputCommitted(None, None, "c-1")),
    ("input_audio_buffer.commit", {"response_create": False}, InputCommitted(False, None, "c-1")),
    ("input_audio_buffer.commit", {"create_response": True}, InputCommitted(True, None, "c-1")),
    ("input_audio_buffer.commit", {"is_speech": False}, InputCommitted(None, False, "c-1")),
    ("input.commit", {}, InputCommitted(True, None, "c-1")),
    ("input.commit", {"create_response": False}, InputCommitted(False, None, "c-1")),
    ("input_audio_buffer.clear", {}, InputCleared("c-1")),
    ("input.cancel", {}, InputCancelled("c-1")),
    (
        "conversation.item.create",
        {"item": MESSAGE},
        ItemCreated("user", "a\nb", None, None, None, "c-1"),
    ),
    (
        "conversation.item.create",
        {"item": {**MESSAGE, "id": "item_a"}, "previous_item_id": "item_b"},
        ItemCreated("user", "a\nb", ITEM, ItemId("item_b"), None, "c-1"),
    ),
    (
        "conversation.item.create",
        {"item": SPOKEN},
        ItemReceived(ItemCreated("user", "a", None, None, None, "c-1"), b"\x00\x01\x02"),
    ),
    (
        "conversation.item.create",
        {"item": OUTPUT},
        ItemCreated("tool", "{}", None, None, "call_1", "c-1"),
    ),
    ("conversation.item.retrieve", {"item_id": "item_a"}, ItemRetrieved(ITEM, "c-1")),
    ("conversation.item.delete", {"item_id": "item_a"}, ItemDeleted(ITEM, "c-1")),
    (
        "conversation.item.truncate",
        {"item_id": "item_a", "audio_end_ms": 1850},
        ItemTruncated(ITEM, 1850, 0, "c-1"),
    ),
    (
        "conversation.item.truncate",
        {"item_id": "item_a", "audio_end_ms": 1850.0, "content_index": 0},
        ItemTruncated(ITEM, 1850, 0, "c-1"),
    ),
    ("response.create", {}, ResponseRequested(ResponseOptions(), "c-1")),
    ("response.create", {"response": None}, ResponseRequested(ResponseOptions(), "c-1")),
    ("response.cancel", {}, ResponseCancelRequested(None, "c-1")),
    ("response.cancel", {"response_id": "resp_a"}, ResponseCancelRequested(RESPONSE, "c-1")),
    ("output_audio_buffer.clear", {}, OutputClearRequested(None, "c-1")),
    ("output_audio_buffer.clear", {"response_id": "resp_a"}, OutputClearRequested(RESPONSE, "c-1")),
    ("barge_in", {}, BargedIn("c-1")),
    ("turn.signal", {"event": "user_started"}, TurnSignalled("user_started", "c-1")),
    ("turn.signal", {"event": "barge_in"}, BargedIn("c-1")),
    ("turn.signal", {"event": "input.cancel", "payload": None}, InputCancelled("c-1")),
    (
        "turn.signal",
        {"event": "response.cancel", "payload": {"response_id": "resp_a", "event_id": "inner"}},
        ResponseCancelRequested(RESPONSE, "c-1"),
    ),
    (
        "turn.signal",
        {"event": "session.update", "payload": {"session": {"voice": "alto"}}},
        SessionConfigured(ConfigPatch((("voice", "alto"),)), "c-1"),
    ),
    (
        "turn.signal",
        {"event": "conversation.item.delete", "payload": {"item_id": "item_a"}},
        ItemDeleted(ITEM, "c-1"),
    ),
    ("playback.ack", {"played_ms": 1000}, PlaybackAcked(1000, None, None, None, "c-1")),
    (
        "playback.ack",
        {"played_ms": 1000.0, "committed_ms": 900, "response_id": "resp_a", "item_id": "item_a"},
        PlaybackAcked(1000, 900, RESPONSE, ITEM, "c-1"),
    ),
    (
        "input_audio_buffer.append",
        {"audio": "AAAA"},
        AudioReceived(b"\0\0\0", None, 4, event_id="c-1"),
    ),
]


@pytest.mark.parametrize(("event_type", "fields", "command"), GOOD)
def test_an_event_becomes_its_command(event_type: str, fields: Fields, command: Command) -> None:
    assert sent(event_type, event_id="c-1", **fields) == command


@pytest.mark.parametrize(
    ("event_type", "fields", "command"),
    # A session.update without a session object is one itself, and echoes what nobody knows.
    [row for row in GOOD if row[0] != "session.update" or "session" in row[1]],
)
def test_unknown_fields_change_nothing(event_type: str, fields: Fields, command: Command) -> None:
    assert sent(event_type, event_id="c-1", x_new={"a": [1]}, **fields) == command


def test_the_table_has_every_event() -> None:
    assert {event_type for event_type, _, _ in GOOD} == CLIENT_EVENTS.keys()
    assert len(CLIENT_EVENTS) == 21


def test_each_model_bears_the_name_it_is_found_by() -> None:
    assert {m.model_fields["type"].default: m for m in CLIENT_EVENTS.values()} == CLIENT_EVENTS


@pytest.mark.parametrize(("alias", "canonical"), ALIASES.items())
def test_an_alias_means_its_event(alias: str, canonical: str) -> None:
    fields = next(fields for event_type, fields, _ in GOOD if event_type == canonical)
    if canonical == "input_audio_buffer.append":
        fields = {**fields, "format": "pcm16"}
    assert sent(alias, **fields) == sent(canonical, **fields)


# --- input_audio_buffer.append ---------------------------------------------------------------


def appended(alias: str | None = None, /, **fields: object) -> AudioReceived:
    command = sent(alias or "input_audio_buffer.append", **{"audio": "AAAA", **fields})
    assert isinstance(command, AudioReceived), command
    return command


@pytest.mark.parametrize("alias", ["input.audio.append", "push_chunk"])
def test_a_legacy_append_is_wav_unless_it_says_otherwise(alias: str) -> None:
    assert appended(alias).format == AudioFormat(AudioEncoding.WAV, 16_000)
    assert appended(alias, format="pcm16").format == AudioFormat(AudioEncoding.PCM16, 16_000)
    named = appended(alias, input_audio_format="g711_ulaw").format
    assert named == AudioFormat(AudioEncoding.G711_ULAW, 8_000)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"format": "pcm16"}, AudioFormat(AudioEncoding.PCM16, 16_000)),
        ({"format": "audio/pcm"}, AudioFormat(AudioEncoding.PCM16, 16_000)),
        ({"format": "s16le", "sample_rate": 48_000}, AudioFormat(AudioEncoding.PCM16, 48_000)),
        ({"sample_rate_hz": 24_000}, AudioFormat(AudioEncoding.PCM16, 24_000)),
        ({"format": "f32le"}, AudioFormat(AudioEncoding.PCM_F32LE, 16_000)),
        ({"format": "g711_alaw"}, AudioFormat(AudioEncoding.G711_ALAW, 8_000)),
        (
            {"format": "audio/pcmu", "sample_rate_hz": 16_000},
            AudioFormat(AudioEncoding.G711_ULAW, 16_000),
        ),
        (
            {"format": {"type": "audio/pcm", "rate": 24_000}},
            AudioFormat(AudioEncoding.PCM16, 24_000),
        ),
        ({"format": {"type": "wav"}}, AudioFormat(AudioEncoding.WAV, 16_000)),
    ],
)
def test_an_append_may_name_its_format(fields: Fields, expected: AudioFormat | None) -> None:
    assert appended(**fields).format == expected


@pytest.mark.parametrize(
    ("fields", "opinion"),
    [
        ({}, None),
        ({"is_speech": True}, True),
        ({"speech": False}, False),
        ({"is_speech": None, "vad": {}}, None),
        ({"vad": {"is_speech": True}}, True),
        ({"vad": {"speech_probability": 0.5}}, True),
        ({"vad": {"speech_probability": 0.49}}, False),
        ({"speech_probability": 0}, False),
        ({"speech_probability": 1}, True),
        ({"is_speech": False, "vad": {"is_speech": True}}, False),
        ({"vad": {"is_speech": False, "speech_probability": 0.9}}, False),
        ({"vad": {"speech_probability": 0.1}, "speech_probability": 0.9}, False),
    ],
)
def test_the_plainest_opinion_on_speech_counts(fields: Fields, opinion: bool | None) -> None:
    assert appended(**fields).is_speech is opinion


@pytest.mark.parametrize(
    ("named", "action"),
    [
        ("barge_in", "barge_in"),
        ("interrupt", "barge_in"),
        ("cancel", "barge_in"),
        ("listen", "listen"),
        ("continue", "listen"),
        ("ack", "listen"),
        ("drop", "drop"),
        ("ignore", "drop"),
        ("silence", "drop"),
    ],
)
def test_overlap_actions_have_three_meanings(named: str, action: str) -> None:
    assert appended(overlap_action=named).overlap_action == action
    assert appended(overlap=named).overlap_action == action


def test_the_other_fields_of_an_append_arrive() -> None:
    command = appended(
        delta="ignored", force_listen=True, force_barge_in=True, text="mhm", max_slice_nums=1
    )
    assert (command.data, command.wire_bytes) == (b"\0\0\0", 4)
    assert (command.force_listen, command.force_barge_in) == (True, True)
    assert (command.text_hint, command.overlap_action) == ("mhm", None)


def test_delta_is_another_name_for_audio() -> None:
    command = sent("input_audio_buffer.append", delta="AQID")
    assert isinstance(command, AudioReceived)
    assert command.data == b"\1\2\3"


def test_an_empty_append_is_harmless() -> None:
    assert appended(audio="").data == b""


def test_frames_ride_along_and_count() -> None:
    command = appended(video_frames=["/9j/4AAQ", "iVBORw=="])
    assert command.video_frames == (b"\xff\xd8\xff\xe0\0\x10", b"\x89PNG")
    assert command.wire_bytes == 4 + 6 + 4
