"""The objects inside server events: session, items, responses, and what is told about them.

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


class StageMetrics(WireObject):
    """Token timing of the model units that belong to one response, measured by the engine."""

    vllm_ttft_ms: float
    vllm_tpot_ms: float
    vllm_itls_ms: tuple[float, ...]
    num_generation_tokens: int


class VendorMetadata(WireObject):
    """The `vllm_omni` member of a metadata object."""

    stage_metrics: StageMetrics


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


ItemObject = MessageItem | FunctionOutputItem


class AudioPart(WireObject):
    """The part of an answer that is spoken."""

    type: Literal["audio"] = "audio"
    transcript: str


class TextPart(WireObject):
    """The part of an answer that is written."""

    type: Literal["text"] = "text"
    text: str


# --- responses ------------------------------------------------------------------------------


class CreatedEcho(WireObject):
    """The fact behind response.created."""

    type: Literal["response.created"] = "response.created"
    response_id: str
    epoch: int


class CreatedMetadata(WireObject):
    """Metadata of a new answer. Extra fields are the client's own."""

    model_config = ConfigDict(extra="allow")

    duplex_event: CreatedEcho


class DoneMetadata(WireObject):
    """Metadata of an ended answer. Extra fields are the client's own."""

    model_config = ConfigDict(extra="allow")

    cancelled_epoch: Absent[int] = None
    epoch: int
    committed_ms: int
    committed: bool
    playback: PlaybackObject
    vllm_omni: Absent[VendorMetadata] = None


class StatusDetails(WireObject):
    """How an answer ended, and why."""

    type: str
    reason: str


class CreatedResponse(WireObject):
    """An answer at its beginning."""

    id: str
    object: Literal["realtime.response"] = "realtime.response"
    status: Literal["in_progress"] = "in_progress"
    status_details: None = None
    output: tuple[ItemObject, ...] = ()
    modalities: tuple[str, ...]
    metadata: CreatedMetadata


class DoneResponse(WireObject):
    """An answer at its end."""

    id: str
    object: Literal["realtime.response"] = "realtime.response"
    status: str
    status_details: StatusDetails
    output: tuple[ItemObject, ...]
    modalities: tuple[str, ...]
    metadata: DoneMetadata


class SpeakMetadata(WireObject):
    """The decision to speak."""

    session_id: str
    epoch: int
    model_speak: Literal[True] = True


class DeltaMetadata(SpeakMetadata):
    """What a chunk tells besides itself. `audio_duration_ms` is cumulative."""

    end_of_turn: bool
    audio_duration_ms: int
    audio_text_marks: tuple[MarkObject, ...]
    playback: PlaybackObject
    vllm_omni: Absent[VendorMetadata] = None


class ListenMetadata(WireObject):
    """Why nothing is said; `model_listen` when the model itself decided so."""

    type: Literal["response.listen"] = "response.listen"
    reason: str
    model_listen: bool


class ListeningResponse(WireObject):
    """The answer that is no answer."""

    id: Absent[str] = None
    object: Literal["realtime.response"] = "realtime.response"
    status: Literal["listening"] = "listening"
    metadata: ListenMetadata


# --- the rest -------------------------------------------------------------------------------


class AudioUrl(WireObject):
    """Where the committed audio is: inside the session, never at an address."""

    url: Literal["native-duplex:input-audio"] = "native-duplex:input-audio"


class AudioUrlPart(WireObject):
    """Placeholder of the committed audio."""

    type: Literal["audio_url"] = "audio_url"
    audio_url: AudioUrl = AudioUrl()


class CommittedMessage(WireObject):
    """The user's turn as the history has it."""

    role: Literal["user"] = "user"
    content: tuple[AudioUrlPart, ...] = (AudioUrlPart(),)


class CommittedFact(WireObject):
    """What a commit did. The flags are there only when true (`is_speech`: when false)."""

    type: Literal["input.committed"] = "input.committed"
    session_id: str
    turn_id: int
    epoch: int
    history_len: int
    native_audio: Literal[True] = True
    message: CommittedMessage = CommittedMessage()
    realtime_item_id: str
    overlap_deferred: Absent[Literal[True]] = None
    response_create_deferred: Absent[Literal[True]] = None
    empty: Absent[Literal[True]] = None
    is_speech: Absent[Literal[False]] = None
    no_response: Absent[Literal[True]] = None
    overlap_ack: Absent[Literal[True]] = None


class AcknowledgedFact(WireObject):
    """Where an answer's playback stands."""

    type: Literal["playback.acknowledged"] = "playback.acknowledged"
    session_id: str
    epoch: int
    response_id: str
    item_id: str
    played_ms: int
    committed_ms: int
    truncate: bool
    playback: PlaybackObject
    history_committed: bool


class DeletedFact(WireObject):
    """What a delete did."""

    deleted: Literal[True] = True


class TruncatedFact(WireObject):
    """What a truncation did."""

    truncated: Literal[True] = True


class NoFact(WireObject):
    """Nothing further."""


class DurationUsage(WireObject):
    """What a transcription cost."""

    type: Literal["duration"] = "duration"
    seconds: float


class OverlapMetadata(WireObject):
    """What an overlap decision went by."""

    duration_ms: int
    overlap_speech_ms: int


class ErrorObject(WireObject):
    """What went wrong, where, and at which of the client's events."""

    type: str
    code: str
    message: str
    event_id: Absent[str] = None
    param: Absent[str] = None
    retryable: Absent[Literal[True]] = None
