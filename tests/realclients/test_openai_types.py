"""What judges the wire is itself judged: a right conversation passes, each fault is told."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.agents_parser import AgentsParser
from tests.support.live_log import LiveLog
from tests.support.openai_types import live_faults, realtime_faults
from tests.support.realtime_log import RealtimeLog
from tests.support.spoken_turns import conversation, response, session, spoken

Json = dict[str, Any]


def judge(events: list[Json]) -> list[str]:
    log = RealtimeLog()
    for event in events:
        log.hear(json.dumps(event))
    log.end()
    return log.faults


def first(events: list[Json], kind: str) -> Json:
    return next(event for event in events if event["type"] == kind)


def test_a_right_conversation_has_no_fault() -> None:
    assert judge(conversation()) == []


def test_a_right_conversation_is_understood_by_the_strictest_parser() -> None:
    parser = AgentsParser()
    for event in conversation():
        parser.hear(json.dumps(event))
    assert parser.faults == []
    assert [event.name for event in parser.told if event.type == "function_call"] == ["weather"]


def test_the_strictest_parser_refuses_what_the_types_do_not_know() -> None:
    parser = AgentsParser()
    parser.hear('{"type": "response.listen", "event_id": "event_1"}')
    assert "response.listen" in parser.faults[0]


BAD_FRAMES: dict[str, tuple[str, str]] = {
    "no JSON": ("{", "no JSON"),
    "a list": ("[]", "not an object"),
    "a constant": ('{"type": "error", "event_id": "e", "x": NaN}', "NaN"),
    "a name twice": ('{"type": "error", "type": "error"}', "stands twice"),
    "unknown type": ('{"type": "response.listen", "event_id": "e"}', "response.listen"),
    "no event_id": ('{"type": "input_audio_buffer.cleared"}', "event_id"),
    "empty event_id": ('{"type": "input_audio_buffer.cleared", "event_id": ""}', "no event_id"),
    "beta name": ('{"type": "response.text.delta", "event_id": "e"}', "a beta name"),
    "an item created": ('{"type": "conversation.item.created", "event_id": "e"}', "a beta name"),
    "too long": ('{"type": "x' + "x" * 524_288 + '"}', "bytes"),
}


@pytest.mark.parametrize("name", BAD_FRAMES)
def test_a_bad_frame_is_told(name: str) -> None:
    frame, told = BAD_FRAMES[name]
    assert any(told in fault for fault in realtime_faults(frame))


def put(kind: str, *path: str | int, value: object) -> Callable[[list[Json]], None]:
    def change(events: list[Json]) -> None:
        there: Any = first(events, kind)
        for step in path[:-1]:
            there = there[step]
        there[path[-1]] = value

    return change


BAD_FIELDS: dict[str, tuple[Callable[[list[Json]], None], str]] = {
    "a float for a whole number": (
        put("input_audio_buffer.speech_started", "audio_start_ms", value=200.5),
        "audio_start_ms",
    ),
    "a whole float": (
        put("input_audio_buffer.speech_started", "audio_start_ms", value=200.0),
        "audio_start_ms",
    ),
    "a number as text": (
        put("response.output_audio.delta", "output_index", value="0"),
        "output_index",
    ),
    "a field too many": (put("response.created", "epoch", value=1), "epoch: not in the types"),
    "a field too many below": (
        put("session.created", "session", "audio", "input", "gain", value=1),
        "session.audio.input.gain",
    ),
    "a beta field": (put("session.created", "session", "modalities", value=[]), "a beta field"),
    "another rate": (
        put("session.created", "session", "audio", "input", "format", "rate", value=16_000),
        "rate",
    ),
    "a status of our own": (put("response.done", "response", "status", value="barge_in"), "status"),
    "a reason of our own": (
        put("response.done", "response", "status_details", value={"reason": "barge_in"}),
        "reason",
    ),
    "metadata that is no text": (
        put("response.created", "response", "metadata", value={"n": 1}),
        "metadata",
    ),
    "a part by its item's name": (
        put("response.content_part.added", "part", "type", value="output_audio"),
        "part.type",
    ),
    "usage of no kind": (
        put("conversation.item.input_audio_transcription.completed", "usage", value={}),
        "usage",
    ),
    "no character": (
        put("response.output_audio_transcript.delta", "delta", value="\ufffd"),
        "U+FFFD",
    ),
    "half a sample": (put("response.output_audio.delta", "delta", value="AAAA"), "within a sample"),
    "sound in web letters": (put("response.output_audio.delta", "delta", value="-_-_"), "base64"),
    "null in a part": (
        put("response.content_part.added", "part", "audio", value=None),
        "audio is null",
    ),
    "null in an item": (
        put("conversation.item.added", "item", "status", value=None),
        "status is null",
    ),
    "sound without words to come": (
        put("conversation.item.added", "item", "content", 0, value={"type": "input_audio"}),
        "without transcript",
    ),
    "an id twice": (put("response.done", "event_id", value="event_0"), "its event_id came before"),
    "words unlike their deltas": (
        put("response.output_audio_transcript.done", "transcript", value="It is five."),
        "not its deltas joined",
    ),
    "other arguments": (
        put("response.function_call_arguments.done", "arguments", value="{}"),
        "arguments unlike deltas",
    ),
    "another place": (
        put("response.output_item.added", "output_index", value=1),
        "not in its turn",
    ),
    "after an unknown item": (
        put("conversation.item.added", "previous_item_id", value="item_x"),
        "unknown item",
    ),
    "other metadata at the end": (
        put("response.done", "response", "metadata", value={}),
        "other metadata",
    ),
    "usage that does not add up": (
        put("response.done", "response", "usage", "total_tokens", value=13),
        "add up",
    ),
    "an end in progress": (
        put("response.done", "response", "status", value="in_progress"),
        "an end with status",
    ),
    "speech that ends before it starts": (
        put("input_audio_buffer.speech_stopped", "audio_end_ms", value=100),
        "before it started",
    ),
}


@pytest.mark.parametrize("name", BAD_FIELDS)
def test_a_bad_field_is_told(name: str) -> None:
    change, told = BAD_FIELDS[name]
    events = conversation()
    change(events)
    faults = judge(events)
    assert any(told in fault for fault in faults), faults


MISSING = {
    "session.created": "before session.created",
    "input_audio_buffer.speech_started": "other speech stops",
    "input_audio_buffer.speech_stopped": "never stopped",
    "input_audio_buffer.committed": "not committed",
    "conversation.item.added": "was not open",
    "conversation.item.done": "items without an end",
    "response.created": "of no open answer",
    "response.output_item.added": "no item at 0",
    "response.content_part.added": "no part at 0",
    "response.output_audio.done": "ends before its",
    "response.output_audio_transcript.done": "ends before its",
    "response.content_part.done": "before a part",
    "response.output_item.done": "before its items",
    "response.done": "answers without an end",
}


@pytest.mark.parametrize("kind", MISSING)
def test_what_is_missing_is_told(kind: str) -> None:
    events = conversation()
    events.remove(first(events, kind))
    faults = judge(events)
    assert any(MISSING[kind] in fault for fault in faults), faults


@pytest.mark.parametrize("kind", sorted({event["type"] for event in conversation()}))
def test_what_comes_twice_is_told(kind: str) -> None:
    is_repeatable = kind in ("response.output_audio.delta", "rate_limits.updated")
    events = conversation()
    again = dict(first(events, kind), event_id="event_again")
    events.insert(events.index(first(events, kind)) + 1, again)
    assert bool(judge(events)) is not is_repeatable


def test_what_follows_the_end_is_told() -> None:
    events = conversation()
    events.append(dict(first(events, "response.output_audio.delta"), event_id="event_late"))
    assert any("of no open answer" in fault for fault in judge(events))


def test_an_answer_within_another_is_told_but_one_aside_is_not() -> None:
    begin = [session("session.created"), *spoken("resp_1", "item_1", before="item_0")[:1]]
    second: Json = {"type": "response.created", "response": response("resp_2", "in_progress", [])}
    aside = {**second, "response": {**second["response"], "conversation_id": None}}
    within, beside = (
        [{"event_id": str(at), **event} for at, event in enumerate([*begin, more])]
        for more in (second, aside)
    )
    assert any("within another" in fault for fault in judge(within))
    assert not any("within another" in fault for fault in judge(beside))


def test_a_cut_is_within_what_was_sent() -> None:
    cut = {"type": "conversation.item.truncated", "event_id": "cut", "content_index": 0}
    good = [*conversation(), {**cut, "item_id": "item_message", "audio_end_ms": 200}]
    late = [*conversation(), {**cut, "item_id": "item_message", "audio_end_ms": 201}]
    silent = [*conversation(), {**cut, "item_id": "item_user", "audio_end_ms": 0}]
    assert judge(good) == []
    assert any("cut at 201 ms of 200" in fault for fault in judge(late))
    assert any("not spoken" in fault for fault in judge(silent))


def test_an_answer_that_ended_before_its_sound_is_cut_at_its_beginning() -> None:
    cut = {"type": "conversation.item.truncated", "event_id": "cut", "content_index": 0}
    soundless = [
        event
        for event in conversation()
        if event["type"] not in ("response.output_audio.delta", "response.output_audio.done")
    ]
    at_0, at_1 = ({**cut, "item_id": "item_message", "audio_end_ms": ms} for ms in (0, 1))
    assert judge([*soundless, at_0]) == []
    assert any("cut at 1 ms of 0" in fault for fault in judge([*soundless, at_1]))


LIVE_SESSION = {
    "id": "sess_1",
    "expires_at": 4,
    "model": "embedded",
    "status": "active",
    "audio": {"format": {"type": "audio/pcm", "rate": 24_000}},
}
LIVE: list[Json] = [
    {"type": "session.started", "event_id": "1", "session": LIVE_SESSION},
    {
        "type": "session.input_transcript.delta",
        "event_id": "2",
        "delta": "Hi",
        "start_ms": 0,
        "end_ms": 200,
    },
    {"type": "session.output_audio.delta", "delta": "AAAAAA=="},
    {"type": "session.usage.updated", "event_id": "3", "usage": {"seconds": 1.5}},
    {
        "type": "session.closed",
        "event_id": "4",
        "reason": "close_requested",
        "session": LIVE_SESSION,
        "usage": {"seconds": 2},
    },
]


def judge_live(events: list[Json]) -> list[str]:
    log = LiveLog()
    for event in events:
        log.hear(json.dumps(event))
    log.end()
    return log.faults


def test_a_right_live_conversation_has_no_fault() -> None:
    assert judge_live(LIVE) == []


@pytest.mark.parametrize(
    ("events", "told"),
    [
        (LIVE[1:], "before session.started"),
        (LIVE[:-1], "without session.closed"),
        ([*LIVE, {**LIVE[3], "event_id": "5"}], "after session.closed"),
        ([*LIVE[:1], {**LIVE[3], "event_id": "1"}, *LIVE[4:]], "its id came before"),
        ([*LIVE[:1], {**LIVE[2], "delta": "AAAA"}, *LIVE[4:]], "within a sample"),
        ([LIVE[0], {**LIVE[1], "start_ms": 300}, *LIVE[4:]], "ends before it begins"),
        ([LIVE[0], {**LIVE[3], "usage": {"seconds": 3}}, LIVE[4]], "usage falls"),
        ([LIVE[0], {**LIVE[0], "event_id": "9"}, LIVE[4]], "a second session.started"),
    ],
)
def test_what_is_wrong_with_a_live_conversation_is_told(events: list[Json], told: str) -> None:
    faults = judge_live(events)
    assert any(told in fault for fault in faults), faults


def test_the_live_wire_has_its_own_events() -> None:
    assert live_faults('{"type": "session.created", "event_id": "1", "session": {}}') != []
