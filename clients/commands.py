"""Client events as the wire wants them. Pure: each function returns one JSON object."""

import base64
import json
from collections.abc import Mapping

Command = Mapping[str, object]


def as_text(command: Command) -> str:
    """Return a command as one frame."""
    return json.dumps(command, separators=(",", ":"))


def update_session(session: Mapping[str, object]) -> Command:
    """`session.update`; the first one of a connection opens the session."""
    return {"type": "session.update", "session": dict(session)}


def close_session(reason: str) -> Command:
    """`session.close`."""
    return {"type": "session.close", "reason": reason}


def resume_session(session_id: str, resume_token: str, last_seq: int) -> Command:
    """`session.resume`; the first event of a socket that takes an open session up."""
    return {
        "type": "session.resume",
        "session_id": session_id,
        "resume_token": resume_token,
        "last_received_server_event_seq": last_seq,
    }


def ack_events(last_seq: int) -> Command:
    """`session.event_ack`: every event up to this one has come."""
    return {"type": "session.event_ack", "server_event_seq": last_seq}


def heartbeat() -> Command:
    """`session.heartbeat`."""
    return {"type": "session.heartbeat"}


def append_audio(audio: bytes, hints: Mapping[str, object]) -> Command:
    """`input_audio_buffer.append`; hints are further fields such as `is_speech`."""
    return {
        "type": "input_audio_buffer.append",
        "audio": base64.b64encode(audio).decode("ascii"),
        **hints,
    }


def commit(*, create_response: bool | None, is_speech: bool | None) -> Command:
    """`input_audio_buffer.commit`; None leaves a field to the session's mode."""
    options = {"create_response": create_response, "is_speech": is_speech}
    named = {name: value for name, value in options.items() if value is not None}
    return {"type": "input_audio_buffer.commit", **named}


def clear() -> Command:
    """`input_audio_buffer.clear`."""
    return {"type": "input_audio_buffer.clear"}


def create_response(options: Mapping[str, object], request_id: str) -> Command:
    """`response.create`; the request id in its metadata names the response that answers it."""
    given = options.get("metadata")
    metadata = {**given} if isinstance(given, Mapping) else {}
    metadata[REQUEST_ID] = request_id
    return {"type": "response.create", "response": {**options, "metadata": metadata}}


def cancel_response(response_id: str | None) -> Command:
    """`response.cancel`; without an id, the active response."""
    named = {} if response_id is None else {"response_id": response_id}
    return {"type": "response.cancel", **named}


def clear_output(response_id: str | None) -> Command:
    """`output_audio_buffer.clear`."""
    named = {} if response_id is None else {"response_id": response_id}
    return {"type": "output_audio_buffer.clear", **named}


def ack_playback(response_id: str, played_ms: int) -> Command:
    """`playback.ack`: the user has heard this much of the response."""
    return {"type": "playback.ack", "response_id": response_id, "played_ms": played_ms}


def truncate(item_id: str, audio_end_ms: int) -> Command:
    """`conversation.item.truncate`: nothing of the item after this was heard."""
    return {
        "type": "conversation.item.truncate",
        "item_id": item_id,
        "content_index": 0,
        "audio_end_ms": audio_end_ms,
    }


def barge_in() -> Command:
    """`barge_in`: the user interrupts."""
    return {"type": "barge_in"}


REQUEST_ID = "client_request_id"
"""Key in a response's metadata under which the request's `event_id` is sent and echoed."""
