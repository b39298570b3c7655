"""A conversation on `/v1/realtime` as the published wire has it: a question, its answer, a call.

Written from the contract, so that what judges conversations can itself be judged.
"""

import base64
from typing import Any

Json = dict[str, Any]
SOUND = base64.b64encode(bytes(4_800)).decode()
"""100 ms."""
USER, MESSAGE, CALL = "item_user", "item_message", "item_call"
HEARD = {"type": "input_audio", "transcript": None}
SAID = {"type": "output_audio", "transcript": "It is four."}


def conversation() -> list[Json]:
    """Return the events of it, each with an id of its own."""
    events = [session("session.created"), *heard(USER), *spoken("resp_1", MESSAGE, before=USER)]
    events += called("resp_2", CALL, before=MESSAGE)
    return [{"event_id": f"event_{number}", **event} for number, event in enumerate(events)]


def session(kind: str) -> Json:
    """Return a session's event with settings that are common."""
    detection = {
        "type": "server_vad",
        "threshold": 0.5,
        "prefix_padding_ms": 300,
        "silence_duration_ms": 500,
        "create_response": True,
        "interrupt_response": True,
    }
    pcm = {"type": "audio/pcm", "rate": 24_000}
    settings = {
        "type": "realtime",
        "id": "sess_1",
        "object": "realtime.session",
        "model": "embedded",
        "output_modalities": ["audio"],
        "audio": {
            "input": {"format": pcm, "turn_detection": detection},
            "output": {"format": pcm, "voice": "alloy", "speed": 1.0},
        },
        "tools": [],
        "max_output_tokens": "inf",
    }
    return {"type": kind, "session": settings}


def heard(item_id: str, *, before: str | None = None) -> list[Json]:
    """Return what a spoken question causes."""
    words = "conversation.item.input_audio_transcription"
    place = {"item_id": item_id, "content_index": 0}
    item = {"id": item_id, "type": "message", "role": "user", "content": [HEARD]}
    done = {"item": {**item, "status": "completed"}, "previous_item_id": before}
    return [
        {"type": "input_audio_buffer.speech_started", "item_id": item_id, "audio_start_ms": 200},
        {"type": "input_audio_buffer.speech_stopped", "item_id": item_id, "audio_end_ms": 900},
        {
            "type": "input_audio_buffer.committed",
            "item_id": item_id,
            "previous_item_id": before,
        },
        {"type": "conversation.item.added", **done},
        {"type": "conversation.item.done", **done},
        {"type": f"{words}.delta", **place, "delta": "Two and "},
        {"type": f"{words}.delta", **place, "delta": "two?"},
        {
            "type": f"{words}.completed",
            **place,
            "transcript": "Two and two?",
            "usage": {"type": "duration", "seconds": 0.7},
        },
    ]


def response(response_id: str, status: str, output: list[Json]) -> Json:
    """Return an answer as its first and last event show it."""
    return {
        "id": response_id,
        "object": "realtime.response",
        "conversation_id": "conv_1",
        "status": status,
        "output": output,
        "audio": {"output": {"format": {"type": "audio/pcm", "rate": 24_000}}},
        "metadata": {"topic": "sums"},
    }


def finished(response_id: str, item: Json) -> Json:
    """Return the end of an answer of one item."""
    usage = {"total_tokens": 12, "input_tokens": 7, "output_tokens": 5}
    ended = {**response(response_id, "completed", [item]), "usage": usage}
    return {"type": "response.done", "response": ended}


def spoken(response_id: str, item_id: str, *, before: str) -> list[Json]:
    """Return a spoken answer."""
    item = {"id": item_id, "type": "message", "role": "assistant", "content": []}
    begun: Json = {**item, "status": "in_progress"}
    ended: Json = {**item, "status": "completed", "content": [SAID]}
    output = {"response_id": response_id, "output_index": 0}
    part = {**output, "item_id": item_id, "content_index": 0}
    whole = {"type": "audio", "transcript": "It is four."}
    return [
        {"type": "response.created", "response": response(response_id, "in_progress", [])},
        {"type": "rate_limits.updated", "rate_limits": []},
        {"type": "response.output_item.added", **output, "item": begun},
        {"type": "conversation.item.added", "item": begun, "previous_item_id": before},
        {"type": "response.content_part.added", **part, "part": {"type": "audio"}},
        {"type": "response.output_audio_transcript.delta", **part, "delta": "It is "},
        {"type": "response.output_audio.delta", **part, "delta": SOUND},
        {"type": "response.output_audio_transcript.delta", **part, "delta": "four."},
        {"type": "response.output_audio.delta", **part, "delta": SOUND},
        {"type": "response.output_audio.done", **part},
        {"type": "response.output_audio_transcript.done", **part, "transcript": "It is four."},
        {"type": "response.content_part.done", **part, "part": whole},
        {"type": "conversation.item.done", "item": ended, "previous_item_id": before},
        {"type": "response.output_item.done", **output, "item": ended},
        finished(response_id, ended),
    ]


def called(response_id: str, item_id: str, *, before: str) -> list[Json]:
    """Return an answer that is a function call."""
    item = {"id": item_id, "type": "function_call", "name": "weather", "call_id": "call_1"}
    begun: Json = {**item, "status": "in_progress", "arguments": ""}
    ended: Json = {**item, "status": "completed", "arguments": '{"city":"Rome"}'}
    output = {"response_id": response_id, "output_index": 0}
    place = {**output, "item_id": item_id, "call_id": "call_1"}
    arguments = "response.function_call_arguments"
    whole = {"name": "weather", "arguments": '{"city":"Rome"}'}
    return [
        {"type": "response.created", "response": response(response_id, "in_progress", [])},
        {"type": "response.output_item.added", **output, "item": begun},
        {"type": "conversation.item.added", "item": begun, "previous_item_id": before},
        {"type": f"{arguments}.delta", **place, "delta": '{"city":'},
        {"type": f"{arguments}.delta", **place, "delta": '"Rome"}'},
        {"type": f"{arguments}.done", **place, **whole},
        {"type": "conversation.item.done", "item": ended, "previous_item_id": before},
        {"type": "response.output_item.done", **output, "item": ended},
        finished(response_id, ended),
    ]
