"""What the server says on the duplex wire: one model per event, with the wire's own names.

When each is sent, how often and in which order stands in docs/wire.md under the event's name.
"""

from typing import Literal

from session.realtime.answer_fields import ArgumentsFields, ContentFields
from session.realtime.event_objects import (
    AcknowledgedFact,
    AudioPart,
    CommittedFact,
    CreatedResponse,
    DeletedFact,
    DeltaMetadata,
    DoneResponse,
    DurationUsage,
    ErrorObject,
    ListeningResponse,
    NoFact,
    OverlapMetadata,
    SpeakMetadata,
    TextPart,
    TruncatedFact,
)
from session.realtime.server_objects import Absent, ItemObject
from session.realtime.session_events import ServerEvent

# --- session --------------------------------------------------------------------------------


class TurnEvent(ServerEvent):
    """Answer to a turn.signal that is a mark."""

    type: Literal["turn.event"] = "turn.event"
    session_id: str
    event: str
    turn_state: str
    epoch: int


class ErrorEvent(ServerEvent):
    """Something was refused or failed; the session goes on unless another event ends it."""

    type: Literal["error"] = "error"
    error: ErrorObject


# --- input ----------------------------------------------------------------------------------


class SpeechStarted(ServerEvent):
    """Onset of user speech."""

    type: Literal["input_audio_buffer.speech_started"] = "input_audio_buffer.speech_started"
    audio_start_ms: int
    item_id: str


class SpeechStopped(ServerEvent):
    """End of user speech."""

    type: Literal["input_audio_buffer.speech_stopped"] = "input_audio_buffer.speech_stopped"
    audio_end_ms: int
    item_id: str


class InputCommitted(ServerEvent):
    """The input buffer became an item."""

    type: Literal["input_audio_buffer.committed"] = "input_audio_buffer.committed"
    previous_item_id: str | None
    item_id: str
    event: CommittedFact


class InputTimedOut(ServerEvent):
    """Nobody has spoken for `idle_timeout_ms`; that silence became an item."""

    type: Literal["input_audio_buffer.timeout_triggered"] = "input_audio_buffer.timeout_triggered"
    audio_start_ms: int
    audio_end_ms: int
    item_id: str


class InputCleared(ServerEvent):
    """The input buffer was dropped."""

    type: Literal["input_audio_buffer.cleared"] = "input_audio_buffer.cleared"


class TranscriptionCompleted(ServerEvent):
    """What the user said."""

    type: Literal["conversation.item.input_audio_transcription.completed"] = (
        "conversation.item.input_audio_transcription.completed"
    )
    item_id: str
    content_index: int = 0
    transcript: str
    usage: DurationUsage


# --- items ----------------------------------------------------------------------------------


class ItemAdded(ServerEvent):
    """An item joined the conversation."""

    type: Literal["conversation.item.added"] = "conversation.item.added"
    previous_item_id: str | None
    item: ItemObject


class ItemCreated(ServerEvent):
    """The same under its older name, right behind it."""

    type: Literal["conversation.item.created"] = "conversation.item.created"
    previous_item_id: str | None
    item: ItemObject


class ItemDone(ServerEvent):
    """An item is final."""

    type: Literal["conversation.item.done"] = "conversation.item.done"
    previous_item_id: str | None
    item: ItemObject


class ItemRetrieved(ServerEvent):
    """Answer to conversation.item.retrieve."""

    type: Literal["conversation.item.retrieved"] = "conversation.item.retrieved"
    item: ItemObject


class ItemDeleted(ServerEvent):
    """Answer to conversation.item.delete."""

    type: Literal["conversation.item.deleted"] = "conversation.item.deleted"
    item_id: str
    event: DeletedFact = DeletedFact()


class ItemTruncated(ServerEvent):
    """Answer to conversation.item.truncate."""

    type: Literal["conversation.item.truncated"] = "conversation.item.truncated"
    item_id: str
    content_index: int
    audio_end_ms: int
    event: TruncatedFact = TruncatedFact()


# --- responses ------------------------------------------------------------------------------


class ResponseCreated(ServerEvent):
    """First event of a visible answer."""

    type: Literal["response.created"] = "response.created"
    response_id: str
    response: CreatedResponse


class OutputItemAdded(ServerEvent):
    """The answer's item, still empty."""

    type: Literal["response.output_item.added"] = "response.output_item.added"
    response_id: str
    output_index: int = 0
    item: ItemObject


class ContentEvent(ContentFields, ServerEvent):
    """Base of the events about the one part of an answer's message."""

    output_index: int = 0


class ContentPartAdded(ContentEvent):
    """The answer's part, still empty."""

    type: Literal["response.content_part.added"] = "response.content_part.added"
    part: AudioPart | TextPart


class ResponseSpeak(ContentEvent):
    """The model chose to speak."""

    type: Literal["response.speak"] = "response.speak"
    metadata: SpeakMetadata


class AudioDelta(ContentEvent):
    """One chunk of speech, as base64."""

    type: Literal["response.audio.delta"] = "response.audio.delta"
    delta: str
    format: str
    sample_rate_hz: int
    metadata: DeltaMetadata


class AudioTranscriptDelta(ContentEvent):
    """The text that a chunk adds; may be empty. Carries metadata when no audio goes with it."""

    type: Literal["response.audio_transcript.delta"] = "response.audio_transcript.delta"
    delta: str
    metadata: Absent[DeltaMetadata] = None


class TextDelta(ContentEvent):
    """Text of an answer without audio."""

    type: Literal["response.text.delta"] = "response.text.delta"
    delta: str
    metadata: Absent[DeltaMetadata] = None


class AudioDone(ContentEvent):
    """No more audio."""

    type: Literal["response.audio.done"] = "response.audio.done"


class AudioTranscriptDone(ContentEvent):
    """All transcript deltas, joined."""

    type: Literal["response.audio_transcript.done"] = "response.audio_transcript.done"
    transcript: str


class TextDone(ContentEvent):
    """All text deltas, joined."""

    type: Literal["response.text.done"] = "response.text.done"
    text: str


class ContentPartDone(ContentEvent):
    """The part is complete."""

    type: Literal["response.content_part.done"] = "response.content_part.done"
    part: AudioPart | TextPart


class FunctionCallEvent(ArgumentsFields, ServerEvent):
    """Base of the events about the arguments of a function call."""


class FunctionCallArgumentsDelta(FunctionCallEvent):
    """Arguments of a function call; all of them at once."""

    type: Literal["response.function_call_arguments.delta"] = (
        "response.function_call_arguments.delta"
    )
    delta: str


class FunctionCallArgumentsDone(FunctionCallEvent):
    """All arguments of a function call."""

    type: Literal["response.function_call_arguments.done"] = "response.function_call_arguments.done"
    name: str
    arguments: str


class OutputItemDone(ServerEvent):
    """The item is complete."""

    type: Literal["response.output_item.done"] = "response.output_item.done"
    response_id: str
    output_index: int = 0
    item: ItemObject


class ResponseDone(ServerEvent):
    """The one terminal of an answer."""

    type: Literal["response.done"] = "response.done"
    response_id: str
    response: DoneResponse


class RateLimitsUpdated(ServerEvent):
    """Follows every response.done; the list is empty."""

    type: Literal["rate_limits.updated"] = "rate_limits.updated"
    rate_limits: tuple[NoFact, ...] = ()


class ResponseListen(ServerEvent):
    """The model chose to listen; no answer is missing."""

    type: Literal["response.listen"] = "response.listen"
    session_id: str
    epoch: int
    response_id: Absent[str] = None
    response: ListeningResponse


class OutputBufferCleared(ServerEvent):
    """Drop what you have not played."""

    type: Literal["output_audio_buffer.cleared"] = "output_audio_buffer.cleared"
    response_id: str


class PlaybackAcknowledged(ServerEvent):
    """Answer to playback.ack."""

    type: Literal["playback.acknowledged"] = "playback.acknowledged"
    event: AcknowledgedFact


class OverlapDecision(ServerEvent):
    """What was done about speech during an answer."""

    type: Literal["overlap.decision"] = "overlap.decision"
    session_id: str
    epoch: int
    policy: str
    action: str
    reason: str
    metadata: OverlapMetadata
