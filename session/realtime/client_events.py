"""What a client may send: one model per event, and the command that each stands for.

Types are strict and unknown fields are ignored. How often an event may come and what it is
answered with stands in docs/wire.md under the event's name.
"""

from abc import abstractmethod
from typing import Annotated, ClassVar, Final, Literal

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field

from session.config import ConfigPatch
from session.ids import ItemId, ResponseId, SessionId
from session.realtime.commands import Command, SessionResumeAsked
from session.realtime.readers import MAX_TEXT_CHARS, bad_value, too_long
from session.realtime.response_options import read_options
from session.realtime.session_fields import read_patch
from session.realtime.tool_fields import read_tools
from session.socket_stimuli import EventAcked
from session.stimuli import (
    BargedIn,
    CloseRequested,
    HeartbeatReceived,
    InputCancelled,
    InputCleared,
    InputCommitted,
    ItemDeleted,
    ItemRetrieved,
    ItemTruncated,
    OutputClearRequested,
    PlaybackAcked,
    ResponseCancelRequested,
    ResponseRequested,
    SessionConfigured,
    TextAppended,
    TurnSignalled,
)

MAX_ID_CHARS: Final = 512
_MAX_COUNT: Final = 2**53 - 1
"""The largest whole number that every JSON reader keeps exact."""
_MAX_REASON_BYTES: Final = 120
"""It becomes the reason of the socket's close frame, which holds 123 bytes."""


def _whole(value: object) -> object:
    """Let 500.0 pass for 500, as JavaScript makes no difference; 500.5 stays what it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Count = Annotated[int, BeforeValidator(_whole), Field(ge=0, le=_MAX_COUNT)]
Milliseconds = Count
Id = Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARS)]
Text = Annotated[str, Field(max_length=MAX_TEXT_CHARS)]


class ClientEvent(BaseModel):
    """Base of every client event."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    refusal_code: ClassVar[str] = ""
    """Code of the error for fields that do not fit, where the event has one of its own."""
    event_id: Id | None = None

    @abstractmethod
    def to_command(self) -> Command:
        """Return what the event asks for; raise ClientError if it can not be asked."""


class SessionUpdate(ClientEvent):
    """Opens a session when it comes first; later changes the settings that it names, or none."""

    model_config = ConfigDict(extra="allow")

    type: Literal["session.update"] = "session.update"
    session: dict[str, object] | None = None
    """Without it the event itself is the session object."""

    def to_command(self) -> Command:
        """Return the settings as a patch."""
        if self.session is not None:
            return SessionConfigured(read_patch(self.session, "session."), self.event_id)
        patch = read_patch(self.model_extra, "") if self.model_extra else ConfigPatch()
        return SessionConfigured(patch, self.event_id)


class SessionResume(ClientEvent):
    """Goes on with a session after its socket broke; the first event of a socket or none."""

    refusal_code = "invalid_session_resume"
    type: Literal["session.resume"] = "session.resume"
    session_id: Id
    resume_token: Id
    last_received_server_event_seq: Count = 0

    def to_command(self) -> Command:
        """Return the request for the gateway."""
        return SessionResumeAsked(
            SessionId(self.session_id),
            self.resume_token,
            self.last_received_server_event_seq,
            self.event_id,
        )


class SessionEventAck(ClientEvent):
    """Says how far the client has read, so that the journal can be cut. Any number, no answer."""

    refusal_code = "invalid_event_ack"
    type: Literal["session.event_ack"] = "session.event_ack"
    server_event_seq: Count

    def to_command(self) -> Command:
        """Return the acknowledgement for the gateway."""
        return EventAcked(self.server_event_seq, self.event_id)


class SessionHeartbeat(ClientEvent):
    """Keeps the session from expiring; answered each time."""

    type: Literal["session.heartbeat"] = "session.heartbeat"

    def to_command(self) -> Command:
        """Return the stimulus."""
        return HeartbeatReceived(self.event_id)


class SessionClose(ClientEvent):
    """Closes the session after everything sent before it; once."""

    type: Literal["session.close"] = "session.close"
    reason: str | None = None

    def to_command(self) -> Command:
        """Return the stimulus."""
        if self.reason and len(self.reason.encode()) > _MAX_REASON_BYTES:
            raise too_long("reason", f"{_MAX_REASON_BYTES} bytes")
        return CloseRequested(self.reason or "client_close", self.event_id)


class InputTextAppend(ClientEvent):
    """Adds text to the open input item; any number."""

    type: Literal["input.text.append"] = "input.text.append"
    text: Text

    def to_command(self) -> Command:
        """Return the stimulus."""
        return TextAppended(self.text, self.event_id)


class InputAudioBufferCommit(ClientEvent):
    """Turns the input buffer into a user item. `final` is accepted: every commit is final here."""

    type: Literal["input_audio_buffer.commit"] = "input_audio_buffer.commit"
    create_response: bool | None = Field(
        default=None, validation_alias=AliasChoices("response_create", "create_response")
    )
    is_speech: bool | None = None
    """False declares the buffer to be silence."""

    def to_command(self) -> Command:
        """Return the stimulus."""
        return InputCommitted(self.create_response, self.is_speech, self.event_id)


class InputCommit(ClientEvent):
    """The same as input_audio_buffer.commit, and asks for an answer unless it says otherwise."""

    type: Literal["input.commit"] = "input.commit"
    create_response: bool | None = Field(
        default=None, validation_alias=AliasChoices("response_create", "create_response")
    )
    is_speech: bool | None = None

    def to_command(self) -> Command:
        """Return the stimulus."""
        wants_answer = True if self.create_response is None else self.create_response
        return InputCommitted(wants_answer, self.is_speech, self.event_id)


class InputAudioBufferClear(ClientEvent):
    """Drops the open input."""

    type: Literal["input_audio_buffer.clear"] = "input_audio_buffer.clear"

    def to_command(self) -> Command:
        """Return the stimulus."""
        return InputCleared(self.event_id)


class InputCancel(ClientEvent):
    """Drops pending input and what was being made of it."""

    type: Literal["input.cancel"] = "input.cancel"

    def to_command(self) -> Command:
        """Return the stimulus."""
        return InputCancelled(self.event_id)


class ConversationItemRetrieve(ClientEvent):
    """Asks for an item."""

    type: Literal["conversation.item.retrieve"] = "conversation.item.retrieve"
    item_id: Id

    def to_command(self) -> Command:
        """Return the stimulus."""
        return ItemRetrieved(ItemId(self.item_id), self.event_id)


class ConversationItemDelete(ClientEvent):
    """Removes an item."""

    type: Literal["conversation.item.delete"] = "conversation.item.delete"
    item_id: Id

    def to_command(self) -> Command:
        """Return the stimulus."""
        return ItemDeleted(ItemId(self.item_id), self.event_id)


class ConversationItemTruncate(ClientEvent):
    """Says that nothing of an answer was heard after `audio_end_ms`."""

    type: Literal["conversation.item.truncate"] = "conversation.item.truncate"
    item_id: Id
    audio_end_ms: Milliseconds
    content_index: Count = 0

    def to_command(self) -> Command:
        """Return the stimulus."""
        return ItemTruncated(
            ItemId(self.item_id), self.audio_end_ms, self.content_index, self.event_id
        )


class ResponseCreate(ClientEvent):
    """Asks for an answer, with options for this answer alone."""

    type: Literal["response.create"] = "response.create"
    response: dict[str, object] | None = None

    def to_command(self) -> Command:
        """Return the stimulus."""
        return ResponseRequested(read_options(self.response or {}, read_tools), self.event_id)


class ResponseCancel(ClientEvent):
    """Cancels the answer in progress."""

    type: Literal["response.cancel"] = "response.cancel"
    response_id: Id | None = None

    def to_command(self) -> Command:
        """Return the stimulus."""
        return ResponseCancelRequested(_response_id(self.response_id), self.event_id)


class OutputAudioBufferClear(ClientEvent):
    """Drops what the client has not played, and cancels the answer if it goes on."""

    type: Literal["output_audio_buffer.clear"] = "output_audio_buffer.clear"
    response_id: Id | None = None

    def to_command(self) -> Command:
        """Return the stimulus."""
        return OutputClearRequested(_response_id(self.response_id), self.event_id)


class BargeIn(ClientEvent):
    """The user interrupts."""

    type: Literal["barge_in"] = "barge_in"

    def to_command(self) -> Command:
        """Return the stimulus."""
        return BargedIn(self.event_id)


class TurnSignal(ClientEvent):
    """Marks a point in the turn; creates no answer. (Commands sent this way never get here.)"""

    type: Literal["turn.signal"] = "turn.signal"
    event: Literal[
        "user_started",
        "user_committed",
        "assistant_started",
        "assistant_done",
        "playback_ack",
        "timeout",
        "close",
    ]

    def to_command(self) -> Command:
        """Return the stimulus."""
        return TurnSignalled(self.event, self.event_id)


class PlaybackAck(ClientEvent):
    """Says how much of an answer was played; cumulative, so the last one counts."""

    type: Literal["playback.ack"] = "playback.ack"
    played_ms: Milliseconds
    committed_ms: Milliseconds | None = None
    response_id: Id | None = None
    item_id: Id | None = None
    truncate: bool = False
    """Nothing after this was heard, as conversation.item.truncate says."""

    def to_command(self) -> Command:
        """Return the stimulus."""
        if self.committed_ms is not None and self.committed_ms > self.played_ms:
            raise bad_value("committed_ms", "at most played_ms")
        return PlaybackAcked(
            self.played_ms,
            self.committed_ms,
            _response_id(self.response_id),
            None if self.item_id is None else ItemId(self.item_id),
            self.event_id,
            self.truncate,
        )


def _response_id(named: str | None) -> ResponseId | None:
    return None if named is None else ResponseId(named)
