"""An answer on the duplex wire: order, cardinality, the transcript law, frame sizes."""

import base64
import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session.config import AudioEncoding, AudioFormat
from session.events import (
    Event,
    ResponseFinished,
    SpeechDelta,
)
from session.ids import ItemId, ResponseId
from session.item_events import (
    TextMark,
)
from session.realtime.dialects.audio_pieces import MAX_DELTA_BYTES
from session.realtime.dialects.shapes import MAX_LATENCIES
from session.snapshot import Playback
from session.unit import SegmentMetrics
from tests.realtime.samples import (
    CANCELLED,
    DELTA,
    FENCE,
    FINISHED,
    ITEM,
    LAST_DELTA,
    RESPONSE,
    SPEAK,
    STARTED,
    project,
    projector,
    texts,
    types,
)

MAX_FRAME_BYTES = 512 * 1024
OPENING = [
    "response.created",
    "conversation.item.added",
    "conversation.item.created",
    "response.output_item.added",
    "response.content_part.added",
]
PAIR = ["response.audio.delta", "response.audio_transcript.delta"]
CLOSING = [
    "response.content_part.done",
    "response.output_item.done",
    "conversation.item.done",
    "response.done",
    "rate_limits.updated",
]


def only(sent: list[dict[str, Any]], event_type: str) -> dict[str, Any]:
    """Return the one event of a type."""
    (event,) = [each for each in sent if each["type"] == event_type]
    return event


def joined(sent: list[dict[str, Any]], event_type: str) -> str:
    """Return all deltas of a type, joined."""
    return "".join(each["delta"] for each in sent if each["type"] == event_type)


# --- order -----------------------------------------------------------------------------------


def test_a_spoken_answer_in_its_order() -> None:
    assert types(STARTED, SPEAK, DELTA, LAST_DELTA, FINISHED) == [
        *OPENING,
        "response.speak",
        *PAIR,
        *PAIR,
        "response.audio.done",
        "response.audio_transcript.done",
        *CLOSING,
    ]


def test_a_written_answer_in_its_order() -> None:
    delta = replace(DELTA, pcm=b"", is_text_only=True)
    sent = project(
        replace(STARTED, output_modalities=("text",)),
        SPEAK,
        delta,
        replace(delta, transcript=""),
        replace(delta, transcript="there."),
        replace(
            FINISHED,
            output_modalities=("text",),
            item=replace(FINISHED.item, is_audio=False),
        ),
    )
    assert [each["type"] for each in sent] == [
        *OPENING,
        "response.speak",
        "response.text.delta",
        "response.text.delta",
        "response.text.done",
        *CLOSING,
    ]
    assert only(sent, "response.content_part.added")["part"] == {"type": "text", "text": ""}
    assert only(sent, "response.text.done")["text"] == "Hello there."
    assert only(sent, "response.content_part.done")["part"]["text"] == "Hello there."
    item = only(sent, "response.output_item.done")["item"]
    assert item["content"] == [{"type": "output_text", "text": "Hello there."}]


def test_an_answer_without_output_closes_what_it_opened_and_no_stream() -> None:
    assert types(STARTED, FINISHED) == [*OPENING, *CLOSING]


def test_an_answer_without_words_has_no_transcript_to_close() -> None:
    silent = replace(DELTA, transcript="")
    assert types(STARTED, silent, FINISHED) == [*OPENING, *PAIR, "response.audio.done", *CLOSING]


def test_words_without_audio_are_a_transcript_delta_alone() -> None:
    sent = project(STARTED, replace(DELTA, pcm=b""), FINISHED)
    assert [each["type"] for each in sent] == [
        *OPENING,
        "response.audio_transcript.delta",
        "response.audio.done",
        "response.audio_transcript.done",
        *CLOSING,
    ]
    assert only(sent, "response.audio_transcript.delta")["metadata"]["audio_duration_ms"] == 100


def test_a_delta_with_nothing_in_it_is_not_sent() -> None:
    assert types(replace(DELTA, pcm=b"", transcript="")) == []


def test_speak_is_sent_once() -> None:
    assert types(STARTED, SPEAK, SPEAK) == [*OPENING, "response.speak"]


def test_an_answer_outside_the_conversation_has_no_conversation_events() -> None:
    sent = types(
        replace(STARTED, is_out_of_band=True), DELTA, replace(FINISHED, is_out_of_band=True)
    )
    assert not [name for name in sent if name.startswith("conversation.")]
    assert {"response.output_item.added", "response.output_item.done"} <= set(sent)


def test_two_answers_do_not_mix() -> None:
    other, other_item = ResponseId("resp_2"), ItemId("item_resp_2")
    item = replace(FINISHED.item, item_id=other_item)
    sent = project(
        STARTED,
        DELTA,
        replace(STARTED, response_id=other, item_id=other_item),
        replace(LAST_DELTA, response_id=other, item_id=other_item, transcript="Bye."),
        FINISHED,
        replace(FINISHED, response_id=other, item=item),
    )
    done = [e["transcript"] for e in sent if e["type"] == "response.audio_transcript.done"]
    assert done == ["Hello ", "Bye."]


def test_an_answer_that_began_on_another_socket_is_closed_properly() -> None:
    assert types(LAST_DELTA, FINISHED)[:4] == [
        *PAIR,
        "response.audio.done",
        "response.audio_transcript.done",
    ]
    assert types(FINISHED) == CLOSING


def test_a_finished_answer_is_forgotten() -> None:
    by = projector()
    project(STARTED, DELTA, FINISHED, by=by)
    assert [each["type"] for each in project(FINISHED, by=by)] == CLOSING


def test_every_event_names_its_answer() -> None:
    for sent in project(STARTED, SPEAK, DELTA, FINISHED):
        if sent["type"].startswith("response."):
            assert sent["response_id"] == RESPONSE
        if "item_id" in sent:
            assert sent["item_id"] == ITEM
        if "item" in sent:
            assert sent["item"]["id"] == ITEM


# --- contents --------------------------------------------------------------------------------


def test_created_and_done_carry_the_clients_metadata_beside_the_servers() -> None:
    mine = (("trace", "t3"), ("epoch", "mine"), ("model_dump", "x"), ("duplex_event", "mine"))
    sent = project(replace(STARTED, metadata=mine), replace(CANCELLED, metadata=mine))
    created = only(sent, "response.created")["response"]
    assert created["status"] == "in_progress"
    assert created["output"] == []
    assert created["metadata"] == {
        "trace": "t3",
        "epoch": "mine",
        "model_dump": "x",
        "duplex_event": {"type": "response.created", "response_id": RESPONSE, "epoch": 0},
    }
    done = only(sent, "response.done")["response"]
    assert done["status_details"] == {"type": "cancelled", "reason": "turn_detected"}
    assert done["metadata"] == {
        "trace": "t3",
        "model_dump": "x",
        "duplex_event": "mine",
        "cancelled_epoch": 0,
        "epoch": 1,
        "committed_ms": 100,
        "committed": True,
        "playback": {"generated_ms": 200, "sent_ms": 200, "played_ms": 100, "committed_ms": 100},
    }


def test_a_completed_answer_has_no_cancelled_epoch() -> None:
    done = only(project(FINISHED), "response.done")["response"]
    assert "cancelled_epoch" not in done["metadata"]
    assert done["status_details"] == {"type": "completed", "reason": "stop"}
    assert done["output"][0]["content"][0] == {
        "type": "output_audio",
        "transcript": "Hello there.",
        "audio_duration_ms": 200,
        "audio_text_marks": [{"text_chars": 12, "audio_end_ms": 200}],
    }


def test_a_delta_says_where_it_stands() -> None:
    first, last = [e for e in project(DELTA, LAST_DELTA) if e["type"] == "response.audio.delta"]
    assert (first["format"], first["sample_rate_hz"]) == ("pcm16", 24_000)
    assert base64.b64decode(first["delta"]) == DELTA.pcm
    assert first["metadata"] == {
        "session_id": "sess_1",
        "epoch": 0,
        "model_speak": True,
        "end_of_turn": False,
        "audio_duration_ms": 100,
        "audio_text_marks": [{"text_chars": 6, "audio_end_ms": 100}],
        "playback": {"generated_ms": 100, "sent_ms": 100, "played_ms": 0, "committed_ms": 0},
    }
    assert last["metadata"]["end_of_turn"] is True


def test_the_metrics_of_all_units_are_combined() -> None:
    units = (
        SegmentMetrics(30.0, 10.0, (10.0, 10.0), 3),
        SegmentMetrics(99.0, 20.0, (20.0,), 2),
        SegmentMetrics(99.0, 0.0, (), 1),
    )
    sent = project(replace(DELTA, metrics=units), replace(FINISHED, metrics=units))
    expected = {
        "stage_metrics": {
            "vllm_ttft_ms": 30.0,
            "vllm_tpot_ms": pytest.approx(40.0 / 3),
            "vllm_itls_ms": [10.0, 10.0, 20.0],
            "num_generation_tokens": 6,
        }
    }
    assert only(sent, "response.audio.delta")["metadata"]["vllm_omni"] == expected
    assert only(sent, "response.done")["response"]["metadata"]["vllm_omni"] == expected


def test_a_unit_of_one_token_has_no_gap_to_measure() -> None:
    done = only(
        project(replace(FINISHED, metrics=(SegmentMetrics(5.0, 0.0, (), 1),))), "response.done"
    )
    assert done["response"]["metadata"]["vllm_omni"]["stage_metrics"]["vllm_tpot_ms"] == 0.0


# --- the transcript law ----------------------------------------------------------------------


def test_a_cancelled_answer_says_what_was_sent_and_its_item_what_was_heard() -> None:
    sent = project(STARTED, DELTA, LAST_DELTA, CANCELLED)
    assert only(sent, "response.audio_transcript.done")["transcript"] == "Hello there."
    assert only(sent, "response.content_part.done")["part"]["transcript"] == "Hello there."
    item = only(sent, "response.output_item.done")["item"]
    assert item["status"] == "incomplete"
    assert item["content"][0]["transcript"] == "Hello"
    assert only(sent, "conversation.item.done")["item"] == item
    assert only(sent, "response.done")["response"]["output"] == [item]


def test_a_delta_that_was_dropped_before_it_was_sent_is_not_in_the_transcript() -> None:
    sent = project(STARTED, DELTA, CANCELLED)
    assert only(sent, "response.audio_transcript.done")["transcript"] == "Hello "


DELTAS = st.lists(
    st.builds(
        lambda samples, text, is_turn_end: replace(
            DELTA, pcm=bytes(2 * samples), transcript=text, is_turn_end=is_turn_end
        ),
        st.sampled_from([0, 1, 24, 24_000, 119_999, 120_000, 120_001, 360_000]),
        st.text(max_size=5),
        st.booleans(),
    ),
    max_size=6,
)


@settings(max_examples=40)
@given(DELTAS, st.sampled_from([FINISHED, CANCELLED]))
def test_the_laws_of_an_answer(deltas: list[SpeechDelta], finished: ResponseFinished) -> None:
    sent = project(STARTED, SPEAK, *deltas, finished)
    names = [each["type"] for each in sent]
    count = Counter(names)
    text = "".join(delta.transcript for delta in deltas)
    # law 4
    assert joined(sent, "response.audio_transcript.delta") == text
    done = [e["transcript"] for e in sent if e["type"] == "response.audio_transcript.done"]
    assert done == ([text] if text else [])
    for index, name in enumerate(names):
        if name == "response.audio.delta":
            assert names[index + 1] == "response.audio_transcript.delta"
    # every byte, in order
    audio = [base64.b64decode(e["delta"]) for e in sent if e["type"] == "response.audio.delta"]
    assert b"".join(audio) == b"".join(delta.pcm for delta in deltas)
    assert all(len(chunk) % 2 == 0 and chunk for chunk in audio)
    # one beginning, one end
    assert count["response.created"] == count["response.done"] == count["rate_limits.updated"] == 1
    assert count["response.audio.done"] == min(1, sum(map(_has_output, deltas)))
    assert names[0] == "response.created"
    assert names[-2:] == ["response.done", "rate_limits.updated"]
    assert all(len(json.dumps(each).encode()) < MAX_FRAME_BYTES for each in sent)


def _has_output(delta: SpeechDelta) -> bool:
    return bool(delta.pcm or delta.transcript)


# --- frame size ------------------------------------------------------------------------------


def test_a_chunk_too_large_for_a_frame_becomes_several_pairs() -> None:
    ten_s = replace(DELTA, pcm=bytes(range(256)) * 1_875, audio_ms=10_500, is_turn_end=True)
    sent = project(ten_s)
    assert [each["type"] for each in sent] == PAIR * 2
    audio = sent[0::2]
    assert b"".join(base64.b64decode(e["delta"]) for e in audio) == ten_s.pcm
    assert [e["delta"] for e in sent[1::2]] == ["Hello ", ""]
    assert [e["metadata"]["audio_duration_ms"] for e in audio] == [5_500, 10_500]
    assert [e["metadata"]["end_of_turn"] for e in audio] == [False, True]
    assert [len(e["metadata"]["audio_text_marks"]) for e in audio] == [0, 1]


def test_the_worst_frames_stay_under_the_bound() -> None:
    many = SegmentMetrics(1.0, 1.0, tuple(1_000.123456 for _ in range(50_000)), 50_001)
    marks = tuple(TextMark(n, n) for n in range(100_000))
    worst_text = "\x01" * 65_536
    delta = replace(
        DELTA, pcm=bytes(MAX_DELTA_BYTES * 2), metrics=(many,), marks=marks, audio_ms=20_000
    )
    item = replace(FINISHED.item, text=worst_text * 2, marks=marks)
    by = projector()
    events: list[Event] = [STARTED, delta, replace(FINISHED, item=item, metrics=(many,))]
    sent = texts(by, *events)
    assert max(len(text.encode()) for text in sent) < MAX_FRAME_BYTES
    metrics = json.loads(sent[-2])["response"]["metadata"]["vllm_omni"]["stage_metrics"]
    assert len(metrics["vllm_itls_ms"]) == MAX_LATENCIES


# --- encoding --------------------------------------------------------------------------------


def test_the_encoder_is_asked_once_a_chunk_and_at_the_end_of_a_turn() -> None:
    asked: list[tuple[int, AudioFormat]] = []
    ulaw = AudioFormat(AudioEncoding.G711_ULAW, 8_000)

    def encode(pcm: bytes, audio_format: AudioFormat) -> bytes:
        asked.append((len(pcm), audio_format))
        return b"\xff" * (len(pcm) // 6) if pcm else b"\xff\xff"

    long = replace(DELTA, pcm=bytes(1_500_000), output_format=ulaw)
    nothing = replace(DELTA, pcm=b"", transcript="", output_format=ulaw)
    end = replace(nothing, is_turn_end=True)
    sent = project(long, nothing, end, by=projector(encode))
    assert asked == [(1_500_000, ulaw), (0, ulaw)]
    assert [each["type"] for each in sent] == PAIR * 3
    assert (sent[0]["format"], sent[0]["sample_rate_hz"]) == ("g711_ulaw", 8_000)
    assert base64.b64decode(sent[4]["delta"]) == b"\xff\xff"


def test_an_encoder_that_holds_back_a_chunk_still_lets_its_words_through() -> None:
    sent = project(DELTA, by=projector(lambda _pcm, _format: b""))
    assert [each["type"] for each in sent] == ["response.audio_transcript.delta"]


def test_each_wav_delta_is_a_file_of_its_own() -> None:
    wav = AudioFormat(AudioEncoding.WAV, 24_000)
    delta = replace(DELTA, pcm=bytes(MAX_DELTA_BYTES + 2), output_format=wav)
    sent = project(delta, by=projector(lambda pcm, _format: b"RIFF" + pcm))
    files = [base64.b64decode(e["delta"]) for e in sent if e["type"] == "response.audio.delta"]
    assert [len(file) for file in files] == [MAX_DELTA_BYTES + 4, 6]
    assert all(file.startswith(b"RIFF") for file in files)


def test_a_playback_of_an_earlier_epoch_keeps_its_own() -> None:
    sent = project(replace(DELTA, fence=FENCE.next_epoch(), playback=Playback(9, 8, 7, 6)))
    assert sent[0]["metadata"]["epoch"] == 1
    assert list(sent[0]["metadata"]["playback"].values()) == [9, 8, 7, 6]
