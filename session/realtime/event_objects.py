"""The objects inside server events that say what happened: answers, commits, decisions, errors."""

from typing import Literal

from pydantic import ConfigDict

from session.realtime.server_objects import (
    Absent,
    ItemObject,
    MarkObject,
    PlaybackObject,
    WireObject,
)


class StageMetrics(WireObject):
    """Token timing of the model units that belong to one response, measured by the engine."""

    vllm_ttft_ms: float
    vllm_tpot_ms: float
    vllm_itls_ms: tuple[float, ...]
    num_generation_tokens: int


class VendorMetadata(WireObject):
    """The `vllm_omni` member of a metadata object."""

    stage_metrics: StageMetrics


# --- answers --------------------------------------------------------------------------------


class AudioPart(WireObject):
    """The part of an answer that is spoken."""

    type: Literal["audio"] = "audio"
    transcript: str


class TextPart(WireObject):
    """The part of an answer that is written."""

    type: Literal["text"] = "text"
    text: str


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
