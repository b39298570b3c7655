"""Decoding is total: whatever comes, one command results, and it can be answered."""

import base64
import json
from typing import get_args

from hypothesis import example, given, settings
from hypothesis import strategies as st

from session.realtime.commands import Command
from session.realtime.decode import ALIASES, CLIENT_EVENTS, SIGNALLED_COMMANDS, decode
from session.realtime.dialects.shapes import error_object
from session.realtime.readers import strict_base64
from session.realtime.server_events import ErrorEvent
from session.realtime.session_fields import PRIVATE_KEYS
from session.stimuli import EventRefused, SessionConfigured
from tests.realtime.samples import QUIET_CONFIG
from tests.realtime.wire_texts import MAX_BYTES

# Lone surrogates too: they can arrive as \ud800 in JSON.
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=20)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-2, 70_000),
    st.sampled_from([10**400, -1, 0, 1000.5, 1000.0, 1e308]),
    st.floats(),
    ANY_TEXT,
    st.sampled_from(
        ["AAAA", "AA", "wav", "pcm16", "text", "audio", "server_vad", "message", "inf"]
    ),
)
WORDS = sorted(
    {
        "type", "event_id", "session", "audio", "input", "output", "format", "rate", "extra_body",
        "turn_detection", "threshold", "eagerness", "idle_timeout_ms", "output_modalities",
        "voice", "id", "instructions", "temperature", "max_tokens", "speed", "overlap_policy",
        "auto_response", "ref_audio", "sample_rate_hz", "response", "conversation", "metadata",
        "tools", "item", "item_id", "role", "content", "text", "call_id", "event", "payload",
        "played_ms", "committed_ms", "response_id", "audio_end_ms", "vad", "is_speech",
        "speech_probability", "video_frames", "overlap_action", "reason", "server_event_seq",
        "session_id", "resume_token", "noise_reduction",
    }
    | {min(PRIVATE_KEYS)}
)  # fmt: skip
KEYS = st.one_of(st.sampled_from(WORDS), ANY_TEXT)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=8,
)
EVENT_TYPES = st.sampled_from(sorted(CLIENT_EVENTS) + sorted(ALIASES))
EVENTS = st.builds(
    lambda name, fields: {**fields, "type": name},
    EVENT_TYPES,
    st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=6),
)
SIGNALS = st.builds(
    lambda name, payload: {"type": "turn.signal", "event": name, "payload": payload},
    st.sampled_from(sorted(SIGNALLED_COMMANDS)) | VALUES,
    st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=6) | VALUES,
)


def check(text: str) -> Command:
    """Decode `text`; whatever came of it must be usable."""
    command = decode(text, max_bytes=MAX_BYTES)
    assert isinstance(command, get_args(Command))
    match command:
        case EventRefused():
            answer = ErrorEvent(error=error_object(command.error, command.event_id))
            assert json.loads(answer.to_text("event_1"))["error"]["code"]
        case SessionConfigured():
            command.patch.apply_to(QUIET_CONFIG)
        case _:
            pass
    return command


@given(ANY_TEXT)
def test_any_text(text: str) -> None:
    check(text)


@given(st.binary(max_size=60))
def test_any_bytes_read_as_text(frame: bytes) -> None:
    check(frame.decode("utf-8", "surrogateescape"))
    check(frame.decode("latin-1"))


@given(VALUES)
def test_any_json(value: object) -> None:
    check(json.dumps(value))


@settings(max_examples=150)
@given(EVENTS)
@example({"type": "turn.signal", "event": {}})
@example({"type": "session.update", "session": {"output_modalities": [{}]}})
@example({"type": "playback.ack", "played_ms": 10**400})
def test_any_fields_of_known_events(event: dict[str, object]) -> None:
    check(json.dumps(event))
    check(json.dumps(event, ensure_ascii=False))


@given(SIGNALS)
def test_any_turn_signal(event: dict[str, object]) -> None:
    check(json.dumps(event))


@given(st.integers(0, 200), st.sampled_from(["[", '{"a":']), st.integers(0, 200))
def test_any_depth(opened: int, bracket: str, closed: int) -> None:
    ending = {"[": "]", '{"a":': "}"}[bracket]
    check(bracket * opened + "1" + ending * closed)
    check('{"type": "barge_in", "x": ' + bracket * opened + "1" + ending * opened + "}")


@given(st.text("AB+/=_- \n", max_size=12))
def test_base64_is_read_only_if_writing_it_gives_the_same(encoded: str) -> None:

    try:
        raw = strict_base64(encoded)
    except ValueError:
        return
    written = base64.b64encode(raw).decode()
    # Bits behind the end of the data may differ; nothing else may.
    assert len(written) == len(encoded)
    assert written.rstrip("=")[:-1] == encoded.rstrip("=")[:-1]


@given(EVENT_TYPES, st.text(max_size=600))
def test_a_refusal_keeps_the_client_event_id(name: str, event_id: str) -> None:
    command = check(json.dumps({"type": name, "event_id": event_id, "event": 0, "item": 0}))
    if isinstance(command, EventRefused):
        assert command.event_id == (event_id if len(event_id) <= 512 else None)
