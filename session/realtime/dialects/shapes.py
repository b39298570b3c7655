"""How values of the session look on the wire; shared by whatever projects them.

Rule 1: nothing here grows without bound: a frame must stay under 512 KiB.
"""

import json
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

from session.config import AudioEncoding, SessionConfig, TurnDetection
from session.errors import DuplexError
from session.item_events import (
    ItemView,
    TextMark,
)
from session.realtime.capabilities import Capabilities
from session.realtime.event_objects import (
    ErrorObject,
    StageMetrics,
    VendorMetadata,
)
from session.realtime.server_objects import (
    AudioSideObject,
    ContentPart,
    FunctionCallItem,
    FunctionOutputItem,
    InputAudioPart,
    InputTextPart,
    ItemObject,
    MarkObject,
    MessageItem,
    OutputAudioPart,
    OutputTextPart,
    PlaybackObject,
    SessionAudioObject,
    SessionObject,
    TurnDetectionObject,
)
from session.snapshot import Playback, SessionSnapshot
from session.unit import SegmentMetrics

MAX_TEXT_CHARS: Final = 65_536
"""As long as a text can be if each of its characters takes six bytes of JSON."""
MAX_TEXT_BYTES: Final = 6 * MAX_TEXT_CHARS
MAX_MARKS: Final = 1_000
MAX_LATENCIES: Final = 4_096
MAX_MESSAGE_CHARS: Final = 2_000
MAX_PARAM_CHARS: Final = 512

_RESPONSE_FORMAT: Final = {AudioEncoding.PCM16: "pcm"}


def session_object(session: SessionSnapshot, capabilities: Capabilities) -> SessionObject:
    """Return the session as clients see it, echoed fields included."""
    config, fence = session.config, session.fence
    known: dict[str, object] = {
        "id": fence.session_id,
        "state": session.state,
        "turn_state": session.turn_state,
        "epoch": fence.epoch,
        "turn_id": fence.turn,
        "active_response_id": session.active_response_id,
        "active_response_turn_id": fence.turn if session.active_response_id else None,
        "model": config.model,
        "modalities": config.output_modalities,
        "output_modalities": config.output_modalities,
        "instructions": config.instructions,
        "voice": config.voice,
        "response_format": _RESPONSE_FORMAT.get(
            config.output_format.encoding, config.output_format.encoding.value
        ),
        "input_audio_format": config.input_format.encoding.value,
        "output_audio_format": config.output_format.encoding.value,
        "sample_rate_hz": config.input_format.rate_hz,
        "audio": _audio_object(config),
        "temperature": config.temperature,
        "max_tokens": config.max_output_tokens,
        "speed": config.speed,
        "idle_timeout_s": config.idle_timeout_s,
        "overlap_policy": config.overlap_policy.value,
        "overlap_short_ack_ms": config.overlap_short_ack_ms,
        "overlap_barge_in_ms": config.overlap_barge_in_ms,
        "overlap_silence_rms": config.overlap_silence_rms,
        "playback_commit_policy": config.playback_commit_policy.value,
        "auto_response": config.auto_response,
        "force_listen_count": config.force_listen_count,
        "playback": playback_object(session.playback),
        "turn_detection": _turn_detection_object(config.turn_detection),
        "capabilities": capabilities,
    }
    echoed = _echoed(config, prefix="")
    own = SessionObject.model_fields.keys()
    extra = {name: value for name, value in echoed.items() if name not in own}
    return SessionObject.model_validate(extra | known)


def _audio_object(config: SessionConfig) -> SessionAudioObject:
    sides = {}
    for side, audio_format in (("input", config.input_format), ("output", config.output_format)):
        echoed = _echoed(config, prefix=f"audio.{side}.")
        known = {"format": audio_format.encoding.value, "sample_rate_hz": audio_format.rate_hz}
        sides[side] = AudioSideObject.model_validate(echoed | known)
    return SessionAudioObject(input=sides["input"], output=sides["output"])


def _echoed(config: SessionConfig, *, prefix: str) -> dict[str, object]:
    """Return the echoed fields below `prefix`; without one, those that are not in `audio`."""
    return {
        name.removeprefix(prefix): json.loads(text)
        for name, text in config.echoed
        if (name.startswith(prefix) if prefix else not name.startswith("audio."))
    }


def _turn_detection_object(detection: TurnDetection | None) -> TurnDetectionObject | None:
    if detection is None:
        return None
    return TurnDetectionObject(
        threshold=detection.threshold,
        prefix_padding_ms=detection.prefix_padding_ms,
        silence_duration_ms=detection.silence_duration_ms,
        min_speech_duration_ms=detection.min_speech_duration_ms,
        create_response=detection.create_response,
        interrupt_response=detection.interrupt_response,
        interrupt_confidence=detection.interrupt_confidence,
        idle_timeout_ms=detection.idle_timeout_ms,
    )


def playback_object(playback: Playback) -> PlaybackObject:
    """Return an answer's cursors."""
    return PlaybackObject(
        generated_ms=playback.generated_ms,
        sent_ms=playback.sent_ms,
        played_ms=playback.played_ms,
        committed_ms=playback.committed_ms,
    )


def mark_objects(marks: Sequence[TextMark]) -> tuple[MarkObject, ...]:
    """Return the marks, thinned out evenly when there are many; the last one always stays."""
    step = -(-len(marks) // MAX_MARKS) or 1
    kept = tuple(reversed(marks[::-1][::step]))
    return tuple(
        MarkObject(text_chars=mark.text_chars, audio_end_ms=mark.audio_end_ms) for mark in kept
    )


def item_object(item: ItemView) -> ItemObject:
    """Return a conversation item."""
    if item.call_name is not None:
        return call_object(item)
    if item.call_id is not None:
        return FunctionOutputItem(
            id=item.item_id, status=item.status, call_id=item.call_id, output=fitted(item.text)
        )
    return MessageItem(
        id=item.item_id, role=item.role, status=item.status, content=(_content_part(item),)
    )


def call_object(item: ItemView) -> FunctionCallItem:
    """Return a function call; a stage's door has bounded its arguments."""
    return FunctionCallItem(
        id=item.item_id,
        status=item.status,
        call_id=item.call_id or "",
        name=item.call_name or "",
        arguments=item.text,
    )


def empty_item_object(item_id: str) -> MessageItem:
    """Return an answer's item before it has content."""
    return MessageItem(id=item_id, role="assistant", status="in_progress", content=())


def _content_part(item: ItemView) -> ContentPart:
    text = fitted(item.text)
    match item.role, item.is_audio:
        case "assistant", True:
            return OutputAudioPart(
                transcript=text,
                audio_duration_ms=item.audio_ms,
                audio_text_marks=mark_objects(item.marks),
            )
        case "assistant", False:
            return OutputTextPart(text=text)
        case _, True:
            return InputAudioPart(transcript=text, is_speech=None if item.is_speech else False)
        case _:
            return InputTextPart(text=text)


def fitted(text: str) -> str:
    """Return as much of `text` as a frame surely holds; all of it but for enormous ones."""
    if len(text) <= MAX_TEXT_CHARS:
        return text
    if len(json.dumps(text, ensure_ascii=False).encode()) <= MAX_TEXT_BYTES:
        return text
    return text[:MAX_TEXT_CHARS]


def error_object(error: DuplexError, event_id: str | None) -> ErrorObject:
    """Return what a client is told about an error."""
    return ErrorObject(
        type=error.wire_type,
        code=error.wire_code,
        message=error.message[:MAX_MESSAGE_CHARS],
        event_id=event_id,
        param=None if error.param is None else error.param[:MAX_PARAM_CHARS],
        retryable=True if error.retryable else None,
    )


def vendor_metadata(segments: Sequence[SegmentMetrics]) -> VendorMetadata | None:
    """Combine the model units of one response; None when there were none.

    seed: Performance measurement contract. The first unit's TTFT is the response's; TPOT is the
    mean over all tokens that followed another of their own unit.
    """
    if not segments:
        return None
    followers = [max(segment.generated_tokens - 1, 0) for segment in segments]
    decode_ms = sum(segment.tpot_ms * n for segment, n in zip(segments, followers, strict=True))
    return VendorMetadata(
        stage_metrics=StageMetrics(
            vllm_ttft_ms=segments[0].ttft_ms,
            vllm_tpot_ms=decode_ms / sum(followers) if any(followers) else 0.0,
            vllm_itls_ms=_latest(chain.from_iterable(s.itls_ms for s in segments)),
            num_generation_tokens=sum(segment.generated_tokens for segment in segments),
        )
    )


def _latest(latencies_ms: Iterable[float]) -> tuple[float, ...]:
    return tuple(round(latency, 3) for latency in tuple(latencies_ms)[-MAX_LATENCIES:])
