"""What a client of the OpenAI interface is told, event by event."""

from dataclasses import replace
from typing import Any

import pytest

from session import socket_events
from session.config import AudioEncoding, AudioFormat, TurnDetection
from session.echoed import EchoedPatch
from session.errors import IllegalNow, ItemMissing
from session.events import (
    AnswerItemOpened,
    ErrorRaised,
    Event,
    FunctionCalled,
    InputBufferCleared,
    InputItemCommitted,
    InputTimedOut,
    OutputBufferCleared,
    SessionCreated,
    SessionExpired,
    SessionUpdated,
    UserSpeechStarted,
    UserSpeechStopped,
)
from session.ids import ItemId
from session.item_events import (
    InputTranscribed,
    ItemAdded,
    ItemCut,
    ItemDone,
    ItemRemoved,
    ItemShown,
    ItemView,
)
from session.realtime.dialects.openai import VENDOR_EVENTS
from session.realtime.dialects.openai_shapes import usage_object
from session.realtime.opening import ClientHabits
from session.realtime.rate_limits import RateLimit
from session.unit import SegmentMetrics
from tests.realtime.openai_wire import CONFIG, OPENING, Projection
from tests.realtime.samples import (
    CALL,
    CALLED,
    DELTA,
    FENCE,
    FINISHED,
    ITEM,
    LAST_DELTA,
    OPENED,
    RESPONSE,
    SAMPLES,
    SNAPSHOT,
    STARTED,
    USER_ITEM,
    USER_SPEECH,
    projector,
)

ASKED = replace(STARTED, output_modalities=("audio",))
SPOKEN = replace(USER_SPEECH, text="hello")
TRANSCRIBING = replace(
    CONFIG,
    wants_transcription=True,
    echoed=EchoedPatch((("audio.input.transcription", '{"model":"w"}'),)).resolve(()),
)


def committed(item_id: ItemId = USER_ITEM) -> InputItemCommitted:
    return InputItemCommitted(FENCE, item_id, None, history_len=1)


def snapshot(**changes: Any) -> Any:
    return replace(SNAPSHOT, config=replace(CONFIG, **changes))


# --- the session -------------------------------------------------------------------------------


def test_the_greeting_is_the_lobbys_and_comes_once() -> None:
    [created] = Projection(opening=replace(OPENING, is_lobby=True)).created
    assert created["type"] == "session.created"
    assert created["session"]["expires_at"] == 1_000_000 + 3_600
    assert Projection().created == []


def test_what_the_client_said_of_unused_fields_is_said_back() -> None:
    [created] = Projection(TRANSCRIBING, replace(OPENING, is_lobby=True)).created
    assert created["session"]["audio"]["input"]["transcription"] == {"model": "w"}


def test_nothing_is_kept_for_a_client_that_comes_back() -> None:
    assert not any(event.is_journaled for event in Projection().events(ASKED, DELTA, FINISHED))


@pytest.mark.parametrize("is_configured", [True, False])
def test_settings_that_nobody_asked_for_are_not_told(is_configured: bool) -> None:
    projection = Projection(opening=replace(OPENING, is_configured=is_configured))
    opened = projection.kinds(SessionUpdated(snapshot()))
    assert opened == (["session.updated"] if is_configured else [])
    assert projection.kinds(SessionUpdated(snapshot())) == ["session.updated"]


@pytest.mark.parametrize(
    ("detection", "shown"),
    [
        (None, None),
        (
            TurnDetection(eagerness="low"),
            {
                "type": "semantic_vad",
                "eagerness": "low",
                "create_response": True,
                "interrupt_response": True,
            },
        ),
    ],
)
def test_turn_detection_is_shown_as_it_was_asked_for(
    detection: TurnDetection | None, shown: object
) -> None:
    lobby = replace(OPENING, is_lobby=True)
    [created] = Projection(replace(CONFIG, turn_detection=detection), lobby).created
    assert created["session"]["audio"]["input"]["turn_detection"] == shown


def test_the_end_of_a_session_is_an_error_that_says_why() -> None:
    for reason, word in (("max_session_duration", "maximum"), ("x", "x")):
        [sent] = Projection().send(SessionExpired(FENCE, reason))
        assert sent["error"]["code"] == "session_expired"
        assert word in sent["error"]["message"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (IllegalNow("m", code="response_not_active"), "response_cancel_not_active"),
        (IllegalNow("m", code="input_audio_buffer_empty"), "input_audio_buffer_commit_empty"),
        (ItemMissing("m", param="item_id", asked="delete"), "item_delete_invalid_item_id"),
        (IllegalNow("m", code="some_other"), "some_other"),
    ],
)
def test_errors_have_the_names_that_clients_know(error: IllegalNow, code: str) -> None:
    [sent] = Projection().send(ErrorRaised(error, "mine"))
    assert (sent["error"]["code"], sent["error"]["event_id"]) == (code, "mine")


# --- input -------------------------------------------------------------------------------------


def test_edges_of_speech_and_the_rest_of_the_buffer() -> None:
    assert Projection().kinds(
        UserSpeechStarted(100, USER_ITEM),
        UserSpeechStopped(900, USER_ITEM),
        InputTimedOut(0, 5_000, USER_ITEM),
        InputBufferCleared(),
    ) == [
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.timeout_triggered",
        "input_audio_buffer.cleared",
    ]


def test_an_item_is_told_of_after_its_commit() -> None:
    assert Projection().kinds(
        ItemAdded(USER_SPEECH, None), committed(), ItemDone(USER_SPEECH, None)
    ) == [
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
    ]


def test_an_item_without_a_commit_is_told_of_before_what_follows() -> None:
    assert Projection().kinds(ItemAdded(USER_SPEECH, None), ItemDone(USER_SPEECH, None)) == [
        "conversation.item.added",
        "conversation.item.done",
    ]


def test_a_commit_may_come_long_before_its_item() -> None:
    projection = Projection()
    assert projection.kinds(committed()) == ["input_audio_buffer.committed"]
    other = replace(USER_SPEECH, item_id=ItemId("item_other"))
    assert projection.kinds(ItemAdded(USER_SPEECH, None), ItemAdded(other, USER_ITEM)) == [
        "conversation.item.added"
    ]


def test_what_was_said_is_told_where_the_session_asks_for_it() -> None:
    words = InputTranscribed(USER_ITEM, "hello", 900)
    assert Projection().kinds(words) == []
    projection = Projection(TRANSCRIBING)
    [sent] = projection.send(words)
    assert sent["usage"] == {"type": "duration", "seconds": 0.9}
    [shown] = projection.send(ItemShown(SPOKEN))
    assert shown["item"]["content"] == [{"type": "input_audio", "transcript": "hello"}]
    [hidden] = Projection().send(ItemShown(SPOKEN))
    assert hidden["item"]["content"] == [{"type": "input_audio", "transcript": None}]


def test_written_items_and_what_is_done_with_them() -> None:
    text = ItemView(USER_ITEM, "user", "completed", "hi", is_audio=False)
    system = replace(text, role="system")
    output = ItemView(USER_ITEM, "tool", "completed", "42", is_audio=False, call_id="call_1")
    sent = Projection().send(
        ItemAdded(text, None), ItemAdded(system, None), ItemAdded(output, None)
    )
    assert [each["item"].get("role") for each in sent] == ["user", "system", None]
    assert sent[2]["item"]["output"] == "42"
    assert Projection().kinds(ItemShown(CALL), ItemRemoved(ITEM), ItemCut(ITEM, 0, 100)) == [
        "conversation.item.retrieved",
        "conversation.item.deleted",
        "conversation.item.truncated",
    ]


# --- answers -----------------------------------------------------------------------------------


def test_a_spoken_answer() -> None:
    sent = Projection().send(ASKED, DELTA, LAST_DELTA, FINISHED)
    assert [each["type"] for each in sent] == [
        "response.created",
        "rate_limits.updated",
        "response.output_item.added",
        "conversation.item.added",
        "response.content_part.added",
        "response.output_audio_transcript.delta",
        "response.output_audio.delta",
        "response.output_audio_transcript.delta",
        "response.output_audio.delta",
        "response.output_audio.done",
        "response.output_audio_transcript.done",
        "response.content_part.done",
        "response.output_item.done",
        "conversation.item.done",
        "response.done",
    ]
    assert sent[10]["transcript"] == "Hello there."
    done = sent[-1]["response"]
    assert (done["status"], done["status_details"]) == ("completed", None)
    assert done["conversation_id"] == "conv_1"
    assert done["usage"]["output_token_details"] == {"text_tokens": 0, "audio_tokens": 4}


def test_an_answer_begins_with_the_rates_as_they_are_then() -> None:
    left = iter([2, 1])

    def rates() -> tuple[RateLimit, ...]:
        return (RateLimit(limit=3, remaining=next(left), reset_s=41.23456),)

    projection = Projection(opening=replace(OPENING, read_rates=rates))
    told = [projection.send(ASKED, FINISHED)[1] for _ in range(2)]
    assert [each["rate_limits"] for each in told] == [
        [{"name": "requests", "limit": 3, "remaining": n, "reset_seconds": 41.235}] for n in (2, 1)
    ]
    assert Projection().send(ASKED)[1]["rate_limits"] == []


def test_an_answer_that_says_nothing_opens_and_closes_what_it_has() -> None:
    kinds = Projection().kinds(ASKED, FINISHED)
    assert kinds[-4:] == [
        "response.content_part.done",
        "response.output_item.done",
        "conversation.item.done",
        "response.done",
    ]
    assert "response.output_audio.done" not in kinds


def test_a_written_answer_apart() -> None:
    started = replace(STARTED, output_modalities=("text",), is_out_of_band=True)
    delta = replace(DELTA, pcm=b"", is_text_only=True)
    silent = replace(delta, transcript="")
    item = replace(FINISHED.item, is_audio=False)
    finished = replace(FINISHED, item=item, output_modalities=("text",), is_out_of_band=True)
    sent = Projection().send(started, delta, silent, finished)
    kinds = [each["type"] for each in sent]
    assert not any(kind.startswith("conversation.") for kind in kinds)
    assert kinds.count("response.output_text.delta") == 1
    assert next(each for each in sent if each["type"] == "response.output_text.done")["text"]
    assert sent[-1]["response"]["conversation_id"] is None
    nothing = Projection().kinds(started, finished)
    assert "response.output_text.done" not in nothing


@pytest.mark.parametrize(
    ("status", "reason", "details"),
    [
        ("cancelled", "barge_in", {"type": "cancelled", "reason": "turn_detected"}),
        ("cancelled", "client_cancelled", {"type": "cancelled", "reason": "client_cancelled"}),
        (
            "failed",
            "speech_failed",
            {"type": "failed", "error": {"type": "server_error", "code": "speech_failed"}},
        ),
        ("incomplete", "x", {"type": "incomplete", "reason": "max_output_tokens"}),
    ],
)
def test_an_answer_that_does_not_come_to_its_end(
    status: str, reason: str, details: dict[str, Any]
) -> None:
    sent = Projection().send(ASKED, replace(FINISHED, status=status, reason=reason))
    assert sent[-1]["response"]["status_details"] == details


@pytest.mark.parametrize("is_apart", [True, False])
def test_a_call_and_then_a_message(is_apart: bool) -> None:
    started = replace(ASKED, has_message=False, is_out_of_band=is_apart)
    called: FunctionCalled = replace(CALLED, is_out_of_band=is_apart)
    opened: AnswerItemOpened = replace(OPENED, output_index=1, is_out_of_band=is_apart)
    finished = replace(FINISHED, calls=(CALL,), message_index=1, is_out_of_band=is_apart)
    sent = Projection().send(started, called, opened, DELTA, finished)
    kinds = [each["type"] for each in sent]
    assert kinds[2] == "response.output_item.added"
    assert kinds.index("response.function_call_arguments.done") < kinds.index(
        "response.content_part.added"
    )
    assert ("conversation.item.added" in kinds) is not is_apart
    indexes = {each["output_index"] for each in sent if "output_audio" in each["type"]}
    assert indexes == {1}
    assert [each["type"] for each in sent[-1]["response"]["output"]] == ["function_call", "message"]


def test_a_call_alone_has_no_message() -> None:
    started = replace(ASKED, has_message=False)
    finished = replace(FINISHED, calls=(CALL,), message_index=None)
    kinds = Projection().kinds(started, CALLED, finished)
    assert "response.content_part.added" not in kinds


def test_an_answer_in_the_telephones_format() -> None:
    ulaw = AudioFormat(AudioEncoding.G711_ULAW, 8_000)
    [created, *_] = Projection().send(replace(ASKED, output_format=ulaw))
    assert created["response"]["audio"]["output"]["format"] == {"type": "audio/pcmu"}


# --- beyond the standard -----------------------------------------------------------------------

BEYOND = [event for event in SAMPLES if isinstance(event, VENDOR_EVENTS)]


def test_there_is_a_sample_of_each_event_beyond_the_standard() -> None:
    assert {type(event) for event in BEYOND} == set(VENDOR_EVENTS)


@pytest.mark.parametrize("event", BEYOND, ids=lambda event: type(event).__name__)
def test_other_events_only_for_a_client_that_uses_them(event: Event) -> None:
    assert Projection().kinds(event) == []
    habits = ClientHabits(uses_vendor_events=True)
    [shown] = Projection(opening=replace(OPENING, habits=habits)).events(event)
    assert [shown] == projector().project(event)


def test_what_is_to_be_dropped_only_for_a_client_that_asks_for_such() -> None:
    cleared = OutputBufferCleared(RESPONSE)
    assert Projection().kinds(cleared) == []
    habits = ClientHabits(clears_output=True)
    kinds = Projection(opening=replace(OPENING, habits=habits)).kinds(cleared)
    assert kinds == ["output_audio_buffer.cleared"]


def test_sessions_are_not_resumed_here() -> None:
    again = socket_events.SessionResumed(SNAPSHOT, 2, "token")
    assert Projection().kinds(again) == []
    assert Projection().kinds(SessionCreated(snapshot())) == []


def test_usage_adds_up_of_text_and_audio_that_went_in_and_came_out() -> None:
    segments = (
        SegmentMetrics(30.0, 10.0, (10.0,), 2, read_tokens=40),
        SegmentMetrics(20.0, 0.0, (), 1),
    )
    finished = replace(FINISHED, metrics=segments, input_audio_ms=1_950)
    usage = usage_object(finished).model_dump()
    spoken = usage["output_token_details"]["audio_tokens"]
    assert usage["input_token_details"] == {
        "text_tokens": 40,
        "audio_tokens": 20,
        "cached_tokens": 0,
    }
    assert usage["output_token_details"] == {"text_tokens": 3, "audio_tokens": spoken}
    assert (usage["input_tokens"], usage["output_tokens"]) == (60, 3 + spoken)
    assert usage["total_tokens"] == 63 + spoken
