"""What the server says in this dialect: one model per event of the standard.

Where an event that the standard does not have is shown, it is that of the duplex dialect.
"""

from typing import Literal

from session.realtime.answer_fields import ArgumentsFields, ContentFields
from session.realtime.event_objects import AudioPart, DurationUsage, TextPart
from session.realtime.openai.objects import (
    ErrorObject,
    ItemObject,
    RateLimitObject,
    ResponseObject,
    SessionObject,
)
from session.realtime.server_objects import WireObject


class OpenAIEvent(WireObject):
    """Base of every event."""

    type: str
    event_id: str = ""
    """Filled in by `to_text`, so that no event can be sent without."""

    @property
    def is_journaled(self) -> bool:
        """Sessions of this dialect are not resumed, so nothing is kept."""
        return False

    def to_text(self, event_id: str, server_event_seq: int | None = None) -> str:
        """Return the JSON text of the frame."""
        del server_event_seq  # never given: nothing is journaled
        return self.model_copy(update={"event_id": event_id}).model_dump_json()


class SessionCreated(OpenAIEvent):
    """Comes at once, before the client has said anything."""

    type: Literal["session.created"] = "session.created"
    session: SessionObject


class SessionUpdated(OpenAIEvent):
    """The settings are these now."""

    type: Literal["session.updated"] = "session.updated"
    session: SessionObject


class Error(OpenAIEvent):
    """Something was refused or failed. The session goes on."""

    type: Literal["error"] = "error"
    error: ErrorObject


class RateLimitsUpdated(OpenAIEvent):
    """Comes at the beginning of an answer: how many sessions the owner of the key may still open
    within the minute (`requests`). The list is empty where that is not limited."""

    type: Literal["rate_limits.updated"] = "rate_limits.updated"
    rate_limits: tuple[RateLimitObject, ...] = ()


# --- input ------------------------------------------------------------------------------------


class SpeechStarted(OpenAIEvent):
    """The user begins to speak; the padding is included."""

    type: Literal["input_audio_buffer.speech_started"] = "input_audio_buffer.speech_started"
    item_id: str
    audio_start_ms: int


class SpeechStopped(OpenAIEvent):
    """The user has stopped speaking."""

    type: Literal["input_audio_buffer.speech_stopped"] = "input_audio_buffer.speech_stopped"
    item_id: str
    audio_end_ms: int


class InputCommitted(OpenAIEvent):
    """The input buffer became an item."""

    type: Literal["input_audio_buffer.committed"] = "input_audio_buffer.committed"
    item_id: str
    previous_item_id: str | None


class InputCleared(OpenAIEvent):
    """The input buffer was dropped."""

    type: Literal["input_audio_buffer.cleared"] = "input_audio_buffer.cleared"


class TimeoutTriggered(OpenAIEvent):
    """Nobody has spoken since the last answer; that silence becomes an item."""

    type: Literal["input_audio_buffer.timeout_triggered"] = "input_audio_buffer.timeout_triggered"
    item_id: str
    audio_start_ms: int
    audio_end_ms: int


class OutputCleared(OpenAIEvent):
    """Drop what you have not played. Comes only to a client that has asked for such."""

    type: Literal["output_audio_buffer.cleared"] = "output_audio_buffer.cleared"
    response_id: str


# --- items ------------------------------------------------------------------------------------


class ItemAdded(OpenAIEvent):
    """An item joined the conversation."""

    type: Literal["conversation.item.added"] = "conversation.item.added"
    previous_item_id: str | None
    item: ItemObject


class ItemDone(OpenAIEvent):
    """An item is final."""

    type: Literal["conversation.item.done"] = "conversation.item.done"
    previous_item_id: str | None
    item: ItemObject


class ItemRetrieved(OpenAIEvent):
    """Answer to retrieve."""

    type: Literal["conversation.item.retrieved"] = "conversation.item.retrieved"
    item: ItemObject


class ItemDeleted(OpenAIEvent):
    """Answer to delete."""

    type: Literal["conversation.item.deleted"] = "conversation.item.deleted"
    item_id: str


class ItemTruncated(OpenAIEvent):
    """Answer to truncate."""

    type: Literal["conversation.item.truncated"] = "conversation.item.truncated"
    item_id: str
    content_index: int
    audio_end_ms: int


class TranscriptionCompleted(OpenAIEvent):
    """What the user said, where the session asks for it."""

    type: Literal["conversation.item.input_audio_transcription.completed"] = (
        "conversation.item.input_audio_transcription.completed"
    )
    item_id: str
    content_index: int = 0
    transcript: str
    usage: DurationUsage


# --- answers ----------------------------------------------------------------------------------


class ResponseCreated(OpenAIEvent):
    """An answer begins."""

    type: Literal["response.created"] = "response.created"
    response: ResponseObject


class ResponseDone(OpenAIEvent):
    """The one end of an answer."""

    type: Literal["response.done"] = "response.done"
    response: ResponseObject


class OutputItemEvent(OpenAIEvent):
    """Base of the events about a whole item of an answer."""

    response_id: str
    output_index: int
    item: ItemObject


class OutputItemAdded(OutputItemEvent):
    """An item of the answer, still empty."""

    type: Literal["response.output_item.added"] = "response.output_item.added"


class OutputItemDone(OutputItemEvent):
    """An item of the answer is complete."""

    type: Literal["response.output_item.done"] = "response.output_item.done"


class ContentEvent(ContentFields, OpenAIEvent):
    """Base of the events about the one part of an answer's message."""


class ContentPartAdded(ContentEvent):
    """The part, still empty."""

    type: Literal["response.content_part.added"] = "response.content_part.added"
    part: AudioPart | TextPart


class ContentPartDone(ContentEvent):
    """The part is complete."""

    type: Literal["response.content_part.done"] = "response.content_part.done"
    part: AudioPart | TextPart


class AudioDelta(ContentEvent):
    """A piece of speech, as base64 in the session's output format."""

    type: Literal["response.output_audio.delta"] = "response.output_audio.delta"
    delta: str


class AudioDone(ContentEvent):
    """No more speech."""

    type: Literal["response.output_audio.done"] = "response.output_audio.done"


class TranscriptDelta(ContentEvent):
    """Words of the answer that are spoken."""

    type: Literal["response.output_audio_transcript.delta"] = (
        "response.output_audio_transcript.delta"
    )
    delta: str


class TranscriptDone(ContentEvent):
    """All transcript deltas, joined."""

    type: Literal["response.output_audio_transcript.done"] = "response.output_audio_transcript.done"
    transcript: str


class TextDelta(ContentEvent):
    """Words of the answer that are written."""

    type: Literal["response.output_text.delta"] = "response.output_text.delta"
    delta: str


class TextDone(ContentEvent):
    """All text deltas, joined."""

    type: Literal["response.output_text.done"] = "response.output_text.done"
    text: str


class ArgumentsEvent(ArgumentsFields, OpenAIEvent):
    """Base of the events about the arguments of a function call."""


class ArgumentsDelta(ArgumentsEvent):
    """Arguments of a function call; all of them at once."""

    type: Literal["response.function_call_arguments.delta"] = (
        "response.function_call_arguments.delta"
    )
    delta: str


class ArgumentsDone(ArgumentsEvent):
    """All arguments of a function call."""

    type: Literal["response.function_call_arguments.done"] = "response.function_call_arguments.done"
    name: str
    arguments: str
