"""Reads one frame of the server into a typed event: the only place that knows its JSON."""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from clients import audio_formats
from clients import events as ev
from clients.errors import BadServerEvent

DEFAULT_OUTPUT_RATE_HZ: Final = 24_000
G711_RATE_HZ: Final = 8_000


class _Fields:
    """Tolerant access to a JSON object: a missing or odd value reads as its type's nothing."""

    __slots__ = ("json",)

    def __init__(self, value: object) -> None:
        self.json: Mapping[str, object] = value if isinstance(value, dict) else {}

    def text(self, *names: str) -> str:
        return next((v for n in names if isinstance(v := self.json.get(n), str)), "")

    def integer(self, name: str) -> int:
        value = self.json.get(name)
        return int(value) if isinstance(value, int | float) else 0

    def number(self, name: str) -> int | None:
        value = self.json.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def flag(self, name: str) -> bool:
        return self.json.get(name) is True

    def inner(self, name: str) -> "_Fields":
        return _Fields(self.json.get(name))


_Build = Callable[[_Fields, dict[str, Any]], ev.ServerEvent]


def parse_event(frame: str | bytes, *, received_s: float) -> ev.ServerEvent:
    """Return the event in `frame`. Raises BadServerEvent unless it is a JSON object with a type."""
    try:
        value = json.loads(frame)
    except ValueError as error:
        raise BadServerEvent(f"the server sent a frame that is not JSON: {error}") from error
    fields = _Fields(value)
    name = fields.text("type")
    if not name:
        raise BadServerEvent("the server sent JSON without a type")
    common: dict[str, Any] = {
        "type": name,
        "event_id": fields.text("event_id"),
        "seq": fields.number("server_event_seq"),
        "received_s": received_s,
        "raw": fields.json,
    }
    return _BUILDERS.get(name, _unknown)(fields, common)


def _unknown(_: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    return ev.UnknownEvent(**common)


def _error(fields: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    nested = fields.inner("error")
    # Rejections from before a session exists may be flat: {"type", "code", "error": "text"}.
    source = nested if nested.json else fields
    return ev.ErrorEvent(
        code=source.text("code", "type"),
        message=source.text("message", "error"),
        error_type=nested.text("type"),
        retryable=source.flag("retryable") or nested.text("type") == "rate_limit_error",
        caused_by=nested.text("event_id"),
        **common,
    )


def _session_created(fields: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    session = fields.inner("session")
    return ev.SessionCreated(
        session_id=session.text("id"),
        model=session.text("model"),
        session=session.json,
        **_of_attachment(fields, common),
    )


def _of_attachment(fields: _Fields, common: dict[str, Any]) -> dict[str, Any]:
    # The token has its own field, which is not printed; `raw` is for anybody's eyes.
    public = {name: value for name, value in fields.json.items() if name != "resume_token"}
    return {
        **common,
        "raw": public,
        "attachment_generation": fields.integer("attachment_generation"),
        "resume_token": fields.text("resume_token"),
    }


def _session_resumed(fields: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    session = fields.inner("session")
    return ev.Resumed(
        session_id=fields.text("session_id") or session.text("id"),
        session=session.json,
        **_of_attachment(fields, common),
    )


def _session_replaced(fields: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    return ev.SessionReplaced(
        session_id=fields.text("session_id"),
        attachment_generation=fields.integer("attachment_generation"),
        **common,
    )


def _resync_required(fields: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    return ev.ResyncRequired(
        reason=fields.text("reason"),
        oldest_seq=fields.number("oldest_server_event_seq"),
        newest_seq=fields.number("newest_server_event_seq"),
        **common,
    )


def _session_expiring(fields: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    return ev.SessionExpiring(
        reason=fields.text("reason"), expires_in_ms=fields.integer("expires_in_ms"), **common
    )


def _session_updated(fields: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    return ev.SessionUpdated(session=fields.inner("session").json, **common)


def _session_closed(fields: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    return ev.SessionClosed(reason=fields.text("reason"), **common)


def _session_expired(fields: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    return ev.SessionExpired(reason=fields.text("reason"), **common)


def _heartbeat(_: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    return ev.HeartbeatAck(**common)


def _speech_started(fields: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    return ev.SpeechStarted(
        audio_start_ms=fields.integer("audio_start_ms"), item_id=fields.text("item_id"), **common
    )


def _speech_stopped(fields: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    return ev.SpeechStopped(
        audio_end_ms=fields.integer("audio_end_ms"), item_id=fields.text("item_id"), **common
    )


def _timed_out(fields: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    return ev.InputTimedOut(
        audio_start_ms=fields.integer("audio_start_ms"),
        audio_end_ms=fields.integer("audio_end_ms"),
        item_id=fields.text("item_id"),
        **common,
    )


def _committed(fields: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    details = fields.inner("event")
    return ev.InputCommitted(
        item_id=fields.text("item_id"),
        expects_no_response=details.flag("no_response"),
        is_deferred=details.flag("overlap_deferred"),
        **common,
    )


def _cleared(_: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    return ev.InputCleared(**common)


def _transcribed(fields: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    return ev.InputTranscribed(
        item_id=fields.text("item_id"), transcript=fields.text("transcript"), **common
    )


def _item(fields: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    item = fields.inner("item")
    return ev.ItemEvent(
        item_id=fields.text("item_id") or item.text("id"),
        item=item.json,
        audio_end_ms=fields.integer("audio_end_ms"),
        **common,
    )


def _overlap(fields: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    return ev.OverlapDecision(action=fields.text("action"), reason=fields.text("reason"), **common)


def _turn(fields: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    return ev.TurnEvent(signal=fields.text("event"), turn_state=fields.text("turn_state"), **common)


def _playback(fields: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    details = fields.inner("event")
    return ev.PlaybackAcknowledged(
        item_id=details.text("item_id"),
        played_ms=details.integer("played_ms"),
        committed_ms=details.integer("committed_ms"),
        **common,
    )


def _rate_limits(_: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    return ev.RateLimitsUpdated(**common)


def _of_response(fields: _Fields, common: dict[str, Any]) -> dict[str, Any]:
    response = fields.inner("response")
    metrics = next(
        (
            found
            for metadata in (fields.inner("metadata"), response.inner("metadata"))
            if isinstance(found := metadata.inner("vllm_omni").json.get("stage_metrics"), dict)
        ),
        None,
    )
    response_id = fields.text("response_id") or response.text("id")
    return {**common, "response_id": response_id, "stage_metrics": metrics}


def _response_created(fields: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    metadata = fields.inner("response").inner("metadata").json
    return ev.ResponseCreated(metadata=metadata, **_of_response(fields, common))


def _speak(fields: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    return ev.ResponseSpeak(**_of_response(fields, common))


def _listen(fields: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    reason = fields.inner("response").inner("metadata").text("reason") or fields.text("reason")
    return ev.ResponseListen(reason=reason, **_of_response(fields, common))


def _audio_delta(fields: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    encoding = audio_formats.canonical(fields.text("format"))
    default_hz = G711_RATE_HZ if encoding.startswith("g711") else DEFAULT_OUTPUT_RATE_HZ
    rate_hz = fields.integer("sample_rate_hz") or default_hz
    try:
        audio = base64.b64decode(fields.text("delta"), validate=True)
        duration_ms = audio_formats.duration_ms(audio, encoding, rate_hz)
    except ValueError as error:  # binascii.Error is one, too
        raise BadServerEvent(f"{common['type']} can not be decoded: {error}") from error
    # The decoded bytes replace the base64 text, so that audio is kept once.
    slim = {name: value for name, value in fields.json.items() if name != "delta"}
    return ev.AudioDelta(
        audio=audio,
        encoding=encoding,
        rate_hz=rate_hz,
        duration_ms=duration_ms,
        **_of_response(fields, {**common, "raw": slim}),
    )


def _audio_done(fields: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    return ev.AudioDone(**_of_response(fields, common))


def _transcript_delta(fields: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    return ev.TranscriptDelta(delta=fields.text("delta"), **_of_response(fields, common))


def _transcript_done(fields: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    return ev.TranscriptDone(transcript=fields.text("transcript"), **_of_response(fields, common))


def _text_delta(fields: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    return ev.TextDelta(delta=fields.text("delta"), **_of_response(fields, common))


def _text_done(fields: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    return ev.TextDone(text=fields.text("text"), **_of_response(fields, common))


def _call_delta(fields: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    return ev.FunctionCallDelta(
        delta=fields.text("delta"), **_of_call(fields), **_of_response(fields, common)
    )


def _called(fields: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    return ev.FunctionCalled(
        name=fields.text("name"),
        arguments=fields.text("arguments"),
        **_of_call(fields),
        **_of_response(fields, common),
    )


def _of_call(fields: _Fields) -> dict[str, Any]:
    return {"item_id": fields.text("item_id"), "call_id": fields.text("call_id")}


def _part(fields: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    item_id = fields.text("item_id") or fields.inner("item").text("id")
    return ev.OutputPartEvent(item_id=item_id, **_of_response(fields, common))


def _response_done(fields: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    response = fields.inner("response")
    return ev.ResponseDone(
        status=response.text("status"),
        reason=response.inner("status_details").text("reason"),
        **_of_response(fields, common),
    )


def _output_cleared(fields: _Fields, common: dict[str, Any]) -> ev.ServerEvent:
    return ev.OutputAudioCleared(**_of_response(fields, common))


_BUILDERS: Final[Mapping[str, _Build]] = {
    "error": _error,
    "session.created": _session_created,
    "session.resumed": _session_resumed,
    "session.replaced": _session_replaced,
    "session.resync_required": _resync_required,
    "session.expiring": _session_expiring,
    "session.updated": _session_updated,
    "session.closed": _session_closed,
    "session.expired": _session_expired,
    "session.heartbeat_ack": _heartbeat,
    "input_audio_buffer.speech_started": _speech_started,
    "input_audio_buffer.speech_stopped": _speech_stopped,
    "input_audio_buffer.timeout_triggered": _timed_out,
    "input_audio_buffer.committed": _committed,
    "input_audio_buffer.cleared": _cleared,
    "conversation.item.input_audio_transcription.completed": _transcribed,
    "conversation.item.added": _item,
    "conversation.item.created": _item,
    "conversation.item.done": _item,
    "conversation.item.retrieved": _item,
    "conversation.item.deleted": _item,
    "conversation.item.truncated": _item,
    "overlap.decision": _overlap,
    "turn.event": _turn,
    "playback.acknowledged": _playback,
    "rate_limits.updated": _rate_limits,
    "response.created": _response_created,
    "response.speak": _speak,
    "response.listen": _listen,
    "response.audio.delta": _audio_delta,
    "response.output_audio.delta": _audio_delta,
    "response.audio.done": _audio_done,
    "response.output_audio.done": _audio_done,
    "response.audio_transcript.delta": _transcript_delta,
    "response.output_audio_transcript.delta": _transcript_delta,
    "response.audio_transcript.done": _transcript_done,
    "response.output_audio_transcript.done": _transcript_done,
    "response.text.delta": _text_delta,
    "response.output_text.delta": _text_delta,
    "response.text.done": _text_done,
    "response.output_text.done": _text_done,
    "response.function_call_arguments.delta": _call_delta,
    "response.function_call_arguments.done": _called,
    "response.output_item.added": _part,
    "response.output_item.done": _part,
    "response.content_part.added": _part,
    "response.content_part.done": _part,
    "response.done": _response_done,
    "output_audio_buffer.cleared": _output_cleared,
}
