"""The objects inside events of this dialect: sessions, items, answers, errors.

Source: the published types of the interface. A field that may be absent is left out while it is
None (`Absent`); every other field is always there, null included.
"""

from typing import Literal

from pydantic import ConfigDict

from session.realtime.server_objects import (
    Absent,
    InputTextPart,
    OutputTextPart,
    WireObject,
)
from session.realtime.server_objects import FunctionCallItem as ServerFunctionCallItem
from session.realtime.server_objects import FunctionOutputItem as ServerFunctionOutputItem

# --- session ----------------------------------------------------------------------------------


class FormatObject(WireObject):
    """An audio format; only PCM has a rate."""

    type: Literal["audio/pcm", "audio/pcmu", "audio/pcma"]
    rate: Absent[Literal[24000]] = None


class ServerVadObject(WireObject):
    """Voice detection by its numbers."""

    type: Literal["server_vad"] = "server_vad"
    threshold: float
    prefix_padding_ms: int
    silence_duration_ms: int
    create_response: bool
    interrupt_response: bool
    idle_timeout_ms: int | None


class SemanticVadObject(WireObject):
    """Voice detection by how eager the assistant shall be."""

    type: Literal["semantic_vad"] = "semantic_vad"
    eagerness: Literal["low", "medium", "high", "auto"]
    create_response: bool
    interrupt_response: bool


class AudioInputObject(WireObject):
    """The user's side. Extra fields are what the client asked to be echoed."""

    model_config = ConfigDict(extra="allow")

    format: FormatObject
    transcription: object
    """As the client gave it; null: what the user said is not told."""
    noise_reduction: object
    """As the client gave it. Nothing here needs it."""
    turn_detection: ServerVadObject | SemanticVadObject | None


class AudioOutputObject(WireObject):
    """The assistant's side. Extra fields are what the client asked to be echoed."""

    model_config = ConfigDict(extra="allow")

    format: FormatObject
    voice: object
    """As the client gave it: a name, or an object with an id; also one that no model here has."""
    speed: float


class AudioObject(WireObject):
    """Both sides."""

    input: AudioInputObject
    output: AudioOutputObject


class SessionObject(WireObject):
    """The session as it is now. Extra fields are what the client asked to be echoed."""

    model_config = ConfigDict(extra="allow")

    type: Literal["realtime"] = "realtime"
    object: Literal["realtime.session"] = "realtime.session"
    id: str
    model: str
    """The model that runs, whatever the client asked for."""
    expires_at: Absent[int] = None
    """Unix time in seconds; absent where sessions have no end."""
    output_modalities: tuple[str, ...]
    instructions: str
    max_output_tokens: int | Literal["inf"]
    audio: AudioObject


# --- items ------------------------------------------------------------------------------------


class InputAudioPart(WireObject):
    """Speech of the user."""

    type: Literal["input_audio"] = "input_audio"
    transcript: str | None
    """Null while nobody has told it, and where it is not told."""


class OutputAudioPart(WireObject):
    """Speech of the assistant."""

    type: Literal["output_audio"] = "output_audio"
    transcript: str


ContentPart = InputTextPart | InputAudioPart | OutputTextPart | OutputAudioPart
Status = Literal["completed", "incomplete", "in_progress"]


class MessageItem(WireObject):
    """A message."""

    id: str
    object: Literal["realtime.item"] = "realtime.item"
    type: Literal["message"] = "message"
    status: Status
    role: Literal["user", "assistant", "system"]
    content: tuple[ContentPart, ...]


class FunctionCallItem(ServerFunctionCallItem):
    """A function that the model calls."""

    status: Status


class FunctionOutputItem(ServerFunctionOutputItem):
    """What a function call returned."""

    status: Status


ItemObject = MessageItem | FunctionCallItem | FunctionOutputItem


# --- answers ----------------------------------------------------------------------------------


class FailureObject(WireObject):
    """Why an answer failed."""

    type: Literal["server_error"] = "server_error"
    code: str


class StatusDetails(WireObject):
    """How an answer ended that did not come to its end."""

    type: Literal["cancelled", "failed", "incomplete"]
    reason: Absent[Literal["turn_detected", "client_cancelled", "max_output_tokens"]] = None
    """Of an answer that was cancelled, or is incomplete."""
    error: Absent[FailureObject] = None


class TokenDetails(WireObject):
    """Tokens by kind."""

    text_tokens: int
    audio_tokens: int


class InputTokenDetails(TokenDetails):
    """The same, of input."""

    cached_tokens: int = 0


class UsageObject(WireObject):
    """What an answer took. Text is counted in the model's tokens, as far as it reads or writes any.

    Audio is counted as the interface counts it: a token for 100 ms of input, for 50 ms of output.
    """

    total_tokens: int
    input_tokens: int
    output_tokens: int
    input_token_details: InputTokenDetails
    output_token_details: TokenDetails


class ResponseOutputObject(WireObject):
    """How an answer sounds."""

    format: FormatObject
    voice: Absent[str] = None


class ResponseAudioObject(WireObject):
    """How an answer sounds."""

    output: ResponseOutputObject


class ResponseObject(WireObject):
    """An answer."""

    object: Literal["realtime.response"] = "realtime.response"
    id: str
    status: Literal["in_progress", "completed", "cancelled", "failed", "incomplete"]
    status_details: StatusDetails | None = None
    output: tuple[ItemObject, ...] = ()
    conversation_id: str | None
    """Null for an answer outside the conversation."""
    output_modalities: tuple[str, ...]
    max_output_tokens: int | Literal["inf"]
    audio: ResponseAudioObject
    usage: UsageObject | None = None
    metadata: dict[str, str] | None


# --- the rest ---------------------------------------------------------------------------------


class RateLimitObject(WireObject):
    """One limit of the client's key."""

    name: Literal["requests", "tokens"]
    limit: int
    remaining: int
    reset_seconds: float


class ErrorObject(WireObject):
    """What went wrong, where, and at which of the client's events."""

    type: str
    code: str
    message: str
    param: str | None
    event_id: str | None
    """The client's name for its event."""
