"""Server frames become typed events, whatever else is in them."""

import base64
import json

import pytest

from clients import events as ev
from clients.errors import BadServerEvent
from clients.parse import parse_event
from tests.clients.transcript_server import pcm, transcript


def parse(**fields: object) -> ev.ServerEvent:
    return parse_event(json.dumps(fields), received_s=1.5)


def test_every_event_of_the_golden_answer_is_known() -> None:
    sent = [line["out"] for line in transcript("auto_reply") if "out" in line]
    kinds = [parse(**{**event, "delta": ""}) for event in sent]
    unknown = [e.type for e in kinds if isinstance(e, ev.UnknownEvent)]
    assert unknown == []


def test_an_event_keeps_its_name_its_time_and_its_unknown_fields() -> None:
    event = parse(type="session.heartbeat_ack", event_id="e1", server_event_seq=7, news="x")
    assert isinstance(event, ev.HeartbeatAck)
    assert (event.type, event.event_id, event.seq) == ("session.heartbeat_ack", "e1", 7)
    assert event.received_s == 1.5
    assert event.raw["news"] == "x"


def test_an_unknown_type_is_an_unknown_event() -> None:
    event = parse(type="response.hologram.delta", response_id="r")
    assert isinstance(event, ev.UnknownEvent)
    assert event.type == "response.hologram.delta"


@pytest.mark.parametrize(
    ("duplex", "newer"),
    [
        ("response.audio.delta", "response.output_audio.delta"),
        ("response.audio.done", "response.output_audio.done"),
        ("response.audio_transcript.delta", "response.output_audio_transcript.delta"),
        ("response.audio_transcript.done", "response.output_audio_transcript.done"),
        ("response.text.delta", "response.output_text.delta"),
        ("response.text.done", "response.output_text.done"),
    ],
)
def test_both_names_are_one_class(duplex: str, newer: str) -> None:
    fields = {"response_id": "r", "delta": "AAA="}
    known, same = parse(type=duplex, **fields), parse(type=newer, **fields)
    assert not isinstance(known, ev.UnknownEvent)
    assert type(known) is type(same)


def test_audio_is_decoded_once_and_measured() -> None:
    text = base64.b64encode(pcm(200)).decode()
    event = parse(type="response.audio.delta", response_id="r", delta=text, format="pcm16")
    assert isinstance(event, ev.AudioDelta)
    assert event.audio == pcm(200)
    assert (event.rate_hz, event.duration_ms) == (24_000, 200.0)
    assert "delta" not in event.raw


@pytest.mark.parametrize(
    ("encoding", "rate_hz", "duration_ms"),
    [("g711_ulaw", None, 100.0), ("audio/pcma", 16_000, 50.0), ("pcm_s16le", 8_000, 50.0)],
)
def test_other_encodings_have_their_own_lengths(
    encoding: str, rate_hz: int | None, duration_ms: float
) -> None:
    fields: dict[str, object] = {"delta": base64.b64encode(bytes(800)).decode()}
    fields |= {} if rate_hz is None else {"sample_rate_hz": rate_hz}
    event = parse(type="response.audio.delta", response_id="r", format=encoding, **fields)
    assert isinstance(event, ev.AudioDelta)
    assert event.duration_ms == duration_ms


@pytest.mark.parametrize(
    ("delta", "encoding"), [("not base64!", "pcm16"), ("AAAA", "opus"), ("AAAA", "wav")]
)
def test_audio_that_can_not_be_decoded_is_a_bad_event(delta: str, encoding: str) -> None:
    with pytest.raises(BadServerEvent, match=r"response\.audio\.delta"):
        parse(type="response.audio.delta", response_id="r", delta=delta, format=encoding)


@pytest.mark.parametrize("frame", ["", "{", "[]", '"text"', '{"no": "type"}', '{"type": 3}'])
def test_what_is_no_event_is_refused(frame: str) -> None:
    with pytest.raises(BadServerEvent):
        parse_event(frame, received_s=0.0)


@pytest.mark.parametrize("garbage", [None, 3, "text", [], {"nested": []}])
def test_odd_values_read_as_nothing(garbage: object) -> None:
    names = [line["out"]["type"] for line in transcript("auto_reply") if "out" in line]
    for name in names:
        event = parse(
            type=name,
            response=garbage,
            session=garbage,
            item=garbage,
            event=garbage,
            metadata=garbage,
            audio_end_ms="soon",
        )
        assert event.type == name


def test_an_error_names_its_cause() -> None:
    inner = {"type": "rate_limit_error", "code": "c", "message": "m", "event_id": "c-3"}
    event = parse(type="error", error=inner)
    assert isinstance(event, ev.ErrorEvent)
    assert (event.code, event.message, event.caused_by) == ("c", "m", "c-3")
    assert event.retryable


def test_a_flat_error_is_understood() -> None:
    event = parse(type="error", code="unsupported", error="not here")
    assert isinstance(event, ev.ErrorEvent)
    assert (event.code, event.message, event.retryable) == ("unsupported", "not here", False)


def test_engine_timings_are_found_in_either_place() -> None:
    metadata = {"vllm_omni": {"stage_metrics": {"vllm_ttft_ms": 31.0}}}
    on_delta = parse(type="response.text.delta", response_id="r", metadata=metadata)
    on_done = parse(type="response.done", response={"id": "r", "metadata": metadata})
    for event in (on_delta, on_done):
        assert isinstance(event, ev.ResponseEvent)
        assert (event.response_id, event.stage_metrics) == ("r", {"vllm_ttft_ms": 31.0})


def test_a_listen_decision_needs_no_response() -> None:
    event = parse(type="response.listen", response={"metadata": {"reason": "model_listen"}})
    assert isinstance(event, ev.ResponseListen)
    assert (event.response_id, event.reason) == ("", "model_listen")


def test_a_call_of_a_tool_has_its_arguments() -> None:
    call = {"response_id": "r", "item_id": "i", "call_id": "c"}
    kind = "response.function_call_arguments"
    part = parse(type=f"{kind}.delta", delta="{}", **call)
    done = parse(type=f"{kind}.done", name="look_up", arguments="{}", **call)
    assert isinstance(part, ev.FunctionCallDelta)
    assert isinstance(done, ev.FunctionCalled)
    assert (part.call_id, part.delta) == ("c", "{}")
    assert (done.call_id, done.name, done.arguments) == ("c", "look_up", "{}")


def test_the_events_of_a_resume_are_known_and_keep_the_token_from_view() -> None:
    resumed = parse(type="session.resumed", session_id="s", attachment_generation=2,
                    resume_token="secret")  # fmt: skip
    assert isinstance(resumed, ev.Resumed)
    assert (resumed.session_id, resumed.attachment_generation) == ("s", 2)
    assert resumed.resume_token == "secret"
    assert "secret" not in f"{resumed} {resumed.raw}"
    gone = parse(type="session.resync_required", reason="journal_gap",
                 oldest_server_event_seq=None, newest_server_event_seq=9)  # fmt: skip
    assert isinstance(gone, ev.ResyncRequired)
    assert (gone.reason, gone.oldest_seq, gone.newest_seq) == ("journal_gap", None, 9)
    expiring = parse(type="session.expiring", reason="drain", expires_in_ms=5000)
    assert isinstance(expiring, ev.SessionExpiring)
    assert (expiring.reason, expiring.expires_in_ms) == ("drain", 5000)
