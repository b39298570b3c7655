"""The objects inside server events that say what something is: sessions, items, cursors.

A field that may be absent is left out while it is None (`Absent`); every other field is always
there, null included.
"""

from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from session.realtime.capabilities import Capabilities


def _is_none(value: object) -> bool:
    return value is None


T = TypeVar("T")
Absent = Annotated[T | None, Field(exclude_if=_is_none)]


class WireObject(BaseModel):
    """Base of everything that is written to the wire. Made by our own code, so not strict."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PlaybackObject(WireObject):
    """Cursors of one response: committed <= played <= sent <= generated."""

    generated_ms: int
    sent_ms: int
    played_ms: int
    committed_ms: int


class MarkObject(WireObject):
    """So many characters of the transcript are spoken by then."""

    text_chars: int
    audio_end_ms: int


# --- session --------------------------------------------------------------------------------


class TurnDetectionObject(WireObject):
    """server_vad as it holds; semantic_vad shows as what it was mapped onto."""

    type: Literal["server_vad"] = "server_vad"
    threshold: float
    prefix_padding_ms: int
    silence_duration_ms: int
    min_speech_duration_ms: int
    create_response: bool
    interrupt_response: bool
    interrupt_confidence: float
    idle_timeout_ms: int | None


class AudioSideObject(WireObject):
    """One direction of a session's audio. Extra fields are what the client asked to be echoed."""

    model_config = ConfigDict(extra="allow")

    format: str
    sample_rate_hz: int


class SessionAudioObject(WireObject):
    """Both directions."""

    input: AudioSideObject
    output: AudioSideObject


class SessionObject(WireObject):
    """The session as it is now. Extra fields are what the client asked to be echoed."""

    model_config = ConfigDict(extra="allow")

    object: Literal["realtime.session"] = "realtime.session"
    type: Literal["realtime"] = "realtime"
    id: str
    state: str
    turn_state: str
    epoch: int
    turn_id: int
    active_request_id: None = None
    """Request ids stay inside the server."""
    active_response_id: str | None
    active_response_turn_id: int | None
    model: str
    modalities: tuple[str, ...]
    output_modalities: tuple[str, ...]
    instructions: str | None
    voice: str | None
    response_format: str
    input_audio_format: str
    output_audio_format: str
    sample_rate_hz: int
    audio: SessionAudioObject
    temperature: float | None
    max_tokens: int | None
    speed: float | None
    idle_timeout_s: float
    overlap_policy: str
    overlap_short_ack_ms: int
    overlap_barge_in_ms: int
    overlap_silence_rms: float
    playback_commit_policy: str
    auto_response: bool
    force_listen_count: int
    playback: PlaybackObject
    turn_detection: TurnDetectionObject | None
    capabilities: Capabilities


# --- items ----------------------------------------------------------------------------------


class InputTextPart(WireObject):
    """Text of a user or the system."""

    type: Literal["input_text"] = "input_text"
    text: str


class InputAudioPart(WireObject):
    """Speech of a user."""

    type: Literal["input_audio"] = "input_audio"
    transcript: str
    is_speech: Absent[Literal[False]] = None
    """False for an item that was declared to be silence."""


class OutputTextPart(WireObject):
    """Text of the assistant."""

    type: Literal["output_text"] = "output_text"
    text: str


class OutputAudioPart(WireObject):
    """Speech of the assistant: what was said, or of a cancelled answer what was heard."""

    type: Literal["output_audio"] = "output_audio"
    transcript: str
    audio_duration_ms: int
    audio_text_marks: tuple[MarkObject, ...]


ContentPart = InputTextPart | InputAudioPart | OutputTextPart | OutputAudioPart


class MessageItem(WireObject):
    """A message."""

    id: str
    object: Literal["realtime.item"] = "realtime.item"
    type: Literal["message"] = "message"
    role: str
    status: str
    content: tuple[ContentPart, ...]


class FunctionOutputItem(WireObject):
    """What a function call returned."""

    id: str
    object: Literal["realtime.item"] = "realtime.item"
    type: Literal["function_call_output"] = "function_call_output"
    status: str
    call_id: str
    output: str


class FunctionCallItem(WireObject):
    """A function that the model calls."""

    id: str
    object: Literal["realtime.item"] = "realtime.item"
    type: Literal["function_call"] = "function_call"
    status: str
    call_id: str
    name: str
    arguments: str
    """A JSON object, as text."""


ItemObject = MessageItem | FunctionCallItem | FunctionOutputItem
