"""How values of the session look in the OpenAI dialect."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal

from session import errors
from session.config import AudioEncoding, AudioFormat, SessionConfig, TurnDetection
from session.errors import DuplexError, ItemMissing, MissingField, WrongType
from session.events import (
    ResponseFinished,
)
from session.item_events import (
    ItemView,
)
from session.realtime.dialects.shapes import MAX_MESSAGE_CHARS, MAX_PARAM_CHARS, fitted
from session.realtime.openai.objects import (
    AudioInputObject,
    AudioObject,
    AudioOutputObject,
    ContentPart,
    ErrorObject,
    FailureObject,
    FormatObject,
    FunctionCallItem,
    FunctionOutputItem,
    InputAudioPart,
    InputTokenDetails,
    ItemObject,
    MessageItem,
    OutputAudioPart,
    RateLimitObject,
    SemanticVadObject,
    ServerVadObject,
    SessionObject,
    StatusDetails,
    TokenDetails,
    UsageObject,
)
from session.realtime.rate_limits import RateLimit
from session.realtime.server_objects import InputTextPart, OutputTextPart
from session.snapshot import SessionSnapshot

DEFAULT_VOICE: Final = "default"
"""Shown where the client has named none."""
INPUT_MS_PER_TOKEN: Final = 100
OUTPUT_MS_PER_TOKEN: Final = 50

_UNUSED: Final[Mapping[str, object]] = {
    "tools": [],
    "tool_choice": "auto",
    "tracing": None,
    "truncation": "auto",
    "prompt": None,
    "include": None,
}
"""Fields that are shown as the client gave them, and what they are while it has not."""

_FORMATS: Final = {
    AudioEncoding.PCM16: FormatObject(type="audio/pcm", rate=24000),
    AudioEncoding.G711_ULAW: FormatObject(type="audio/pcmu"),
    AudioEncoding.G711_ALAW: FormatObject(type="audio/pcma"),
}

CODES: Final[Mapping[str, str]] = {
    "bad_event": "invalid_value",
    "unknown_event": "invalid_value",
    "bad_audio": "invalid_value",
    "input_audio_buffer_empty": "input_audio_buffer_commit_empty",
    "response_not_active": "response_cancel_not_active",
    "response_already_active": "conversation_already_has_active_response",
    "unsupported_turn_detection": "invalid_value",
    "unsupported_audio_format": "invalid_value",
    "voice_update_after_audio_unsupported": "cannot_update_voice",
}
"""Codes that clients of this interface know by another name."""

_MESSAGES: Final[Mapping[str, str]] = {
    "response_cancel_not_active": "Cancellation failed: no active response found",
    "input_audio_buffer_commit_empty": (
        "Error committing input audio buffer: buffer too small. Nothing has been appended since "
        "the last commit: append audio first. With turn detection the server commits by itself."
    ),
    "conversation_already_has_active_response": (
        "Conversation already has an active response in progress. Wait until the response is "
        "finished before creating a new one."
    ),
    "unsupported_content_type": "Only model output audio messages can be truncated.",
}
"""Messages that clients of this interface look into."""

_FIRST_WORD: Final = re.compile(r"\w+(\.\w+)*")
_CANCELLED_BY_CLIENT: Final = frozenset(
    {"client_cancelled", "output_audio_buffer_clear", "input_cancelled"}
)


# --- session ----------------------------------------------------------------------------------


def session_object(session: SessionSnapshot, expires_at: int | None) -> SessionObject:
    """Return the session as clients see it."""
    config = session.config
    echoed = {name: json.loads(text) for name, text in config.echoed}
    plain = {name: value for name, value in echoed.items() if not name.startswith("audio.")}
    known: dict[str, object] = {
        "id": session.fence.session_id,
        "model": config.model,
        "expires_at": expires_at,
        "output_modalities": config.output_modalities,
        "instructions": config.instructions or "",
        "max_output_tokens": limit_object(config.max_output_tokens),
        "audio": AudioObject(input=_input(config, echoed), output=_output(config, echoed)),
    }
    return SessionObject.model_validate({**_UNUSED, **plain, **known})


def _input(config: SessionConfig, echoed: Mapping[str, object]) -> AudioInputObject:
    own: dict[str, object] = {"noise_reduction": None} | dict(_below("audio.input.", echoed))
    own["transcription"] = own.get("transcription", {}) if config.wants_transcription else None
    own["format"] = format_object(config.input_format)
    own["turn_detection"] = _turn_detection(config.turn_detection)
    return AudioInputObject.model_validate(own)


def _output(config: SessionConfig, echoed: Mapping[str, object]) -> AudioOutputObject:
    own: dict[str, object] = {"voice": config.voice or DEFAULT_VOICE}
    own |= _below("audio.output.", echoed)
    own["format"] = format_object(config.output_format)
    own["speed"] = 1.0 if config.speed is None else config.speed
    return AudioOutputObject.model_validate(own)


def _below(prefix: str, echoed: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for name, value in echoed.items():
        if name.startswith(prefix):
            yield name.removeprefix(prefix), value


def _turn_detection(detection: TurnDetection | None) -> ServerVadObject | SemanticVadObject | None:
    if detection is None:
        return None
    if detection.eagerness is not None:
        return SemanticVadObject.model_validate(
            {
                "eagerness": detection.eagerness,
                "create_response": detection.create_response,
                "interrupt_response": detection.interrupt_response,
            }
        )
    return ServerVadObject(
        threshold=detection.threshold,
        prefix_padding_ms=detection.prefix_padding_ms,
        silence_duration_ms=detection.silence_duration_ms,
        create_response=detection.create_response,
        interrupt_response=detection.interrupt_response,
        idle_timeout_ms=detection.idle_timeout_ms,
    )


def format_object(audio_format: AudioFormat) -> FormatObject:
    """Return a format; the reader lets no other into a session."""
    return _FORMATS[audio_format.encoding]


def limit_object(tokens: int | None) -> int | Literal["inf"]:
    """Return a token limit; none, and a response's word for none, is "inf"."""
    return tokens or "inf"


# --- items ------------------------------------------------------------------------------------


def item_object(item: ItemView, *, shows_transcript: bool) -> ItemObject:
    """Return a conversation item; `shows_transcript` says whether the user's speech has words."""
    status = item.status
    if item.call_name is not None:
        return FunctionCallItem.model_validate(
            {
                "id": item.item_id,
                "status": status,
                "call_id": item.call_id or "",
                "name": item.call_name,
                "arguments": item.text,
            }
        )
    if item.call_id is not None:
        return FunctionOutputItem.model_validate(
            {
                "id": item.item_id,
                "status": status,
                "call_id": item.call_id,
                "output": fitted(item.text),
            }
        )
    part = _part(item, shows_transcript=shows_transcript)
    return MessageItem.model_validate(
        {"id": item.item_id, "status": status, "role": item.role, "content": (part,)}
    )


def _part(item: ItemView, *, shows_transcript: bool) -> ContentPart:
    text = fitted(item.text)
    match item.role, item.is_audio:
        case "assistant", True:
            return OutputAudioPart(transcript=text)
        case "assistant", False:
            return OutputTextPart(text=text)
        case _, True:
            return InputAudioPart(transcript=text if shows_transcript and text else None)
        case _:
            return InputTextPart(text=text)


def empty_message(item_id: str) -> MessageItem:
    """Return an answer's message before it has content."""
    return MessageItem(id=item_id, status="in_progress", role="assistant", content=())


# --- answers ----------------------------------------------------------------------------------


def status_details(event: ResponseFinished) -> StatusDetails | None:
    """Return how an answer ended; None for one that came to its end."""
    match event.status:
        case "cancelled":
            is_clients = event.reason in _CANCELLED_BY_CLIENT
            reason = "client_cancelled" if is_clients else "turn_detected"
            return StatusDetails.model_validate({"type": "cancelled", "reason": reason})
        case "failed":
            return StatusDetails(type="failed", error=FailureObject(code=event.reason))
        case "incomplete":
            return StatusDetails(type="incomplete", reason="max_output_tokens")
        case _:
            return None


def usage_object(event: ResponseFinished) -> UsageObject:
    """Return what an answer took."""
    heard = -(-event.input_audio_ms // INPUT_MS_PER_TOKEN)
    read = sum(segment.read_tokens for segment in event.metrics)
    written = sum(segment.generated_tokens for segment in event.metrics)
    spoken = -(-event.playback.sent_ms // OUTPUT_MS_PER_TOKEN)
    return UsageObject(
        total_tokens=heard + read + written + spoken,
        input_tokens=heard + read,
        output_tokens=written + spoken,
        input_token_details=InputTokenDetails(text_tokens=read, audio_tokens=heard),
        output_token_details=TokenDetails(text_tokens=written, audio_tokens=spoken),
    )


# --- errors -----------------------------------------------------------------------------------


def error_object(error: DuplexError, event_id: str | None) -> ErrorObject:
    """Return what a client is told about an error, under the names that it knows."""
    if isinstance(error, ItemMissing):
        code = f"item_{error.asked}_invalid_item_id"
    elif isinstance(error, WrongType):
        code = "invalid_type"
    elif isinstance(error, MissingField):
        code = error.code
    else:
        code = CODES.get(error.wire_code, error.wire_code)
    message = _sentence(_MESSAGES.get(code, error.message), error.param)
    return ErrorObject(
        type=error.wire_type,
        code=code,
        message=message[:MAX_MESSAGE_CHARS],
        param=None if error.param is None else error.param[:MAX_PARAM_CHARS],
        event_id=event_id,
    )


def _sentence(message: str, param: str | None) -> str:
    """Return a message that begins as sentences on this wire do; a field stays as it is written."""
    word = _FIRST_WORD.match(message)
    if word is not None and param is not None and word.group() in (param, *param.split(".")):
        return f"'{word.group()}'{message[word.end() :]}"
    is_name = word is not None and ("." in word.group() or "_" in word.group())
    return message if is_name else message[:1].upper() + message[1:]


def rate_objects(rates: Iterable[RateLimit]) -> tuple[RateLimitObject, ...]:
    """Return what a client is told of its rates. What is counted are opens of sessions."""
    return tuple(
        RateLimitObject(
            name="requests",
            limit=rate.limit,
            remaining=rate.remaining,
            reset_seconds=round(rate.reset_s, 3),
        )
        for rate in rates
    )


def expired_error(reason: str) -> errors.LimitError:
    """Return the error that a session which the server ends is told with."""
    words = _ENDED_BY.get(reason, f"Your session has ended: {reason}.")
    return errors.LimitError(words, code="session_expired")


_ENDED_BY: Final[Mapping[str, str]] = {
    "max_session_duration": "Your session hit its maximum duration.",
    "idle_ttl_expired": "Nothing has happened in your session for too long.",
}
