"""What a client of this dialect may send: one model per event, and the command it stands for.

The events that differ from those of the duplex dialect; the others are read by the same models.
"""

from typing import Final, Literal

from session.ids import ItemId
from session.realtime.client_events import ClientEvent, Count, Id, Milliseconds
from session.realtime.commands import AudioReceived, Command
from session.realtime.openai.response_fields import read_response
from session.realtime.openai.session_fields import read_session
from session.realtime.readers import base64_bytes
from session.stimuli import (
    InputCommitted,
    ItemTruncated,
    ResponseRequested,
    SessionConfigured,
)


class SessionUpdate(ClientEvent):
    """Changes the settings that it names."""

    type: Literal["session.update"] = "session.update"
    session: dict[str, object]
    """Any part of it. Fields, ranges and defaults: the table under *More*."""

    def to_command(self) -> Command:
        """Return the settings as a patch; what the model can not do is left out of it later."""
        return SessionConfigured(read_session(self.session), self.event_id, is_lenient=True)


class InputAudioBufferAppend(ClientEvent):
    """Adds audio, in the session's input format, to the input buffer. No answer."""

    type: Literal["input_audio_buffer.append"] = "input_audio_buffer.append"
    audio: str

    def to_command(self) -> Command:
        """Return the audio, decoded from base64 and still in the client's format."""
        data = base64_bytes(self.audio, "audio")
        return AudioReceived(data, None, wire_bytes=len(self.audio), event_id=self.event_id)


class InputAudioBufferCommit(ClientEvent):
    """Turns the input buffer into a user item, whatever is in it. Asks for no answer."""

    type: Literal["input_audio_buffer.commit"] = "input_audio_buffer.commit"

    def to_command(self) -> Command:
        """Return the stimulus."""
        return InputCommitted(create_response=False, is_speech=True, event_id=self.event_id)


class ConversationItemTruncate(ClientEvent):
    """Says that nothing of an answer was heard after `audio_end_ms`."""

    type: Literal["conversation.item.truncate"] = "conversation.item.truncate"
    item_id: Id
    content_index: Count
    audio_end_ms: Milliseconds

    def to_command(self) -> Command:
        """Return the stimulus."""
        return ItemTruncated(
            ItemId(self.item_id), self.audio_end_ms, self.content_index, self.event_id
        )


class ResponseCreate(ClientEvent):
    """Asks for an answer, also without anything new to answer."""

    type: Literal["response.create"] = "response.create"
    response: dict[str, object] | None = None
    """Settings of this one answer. Fields: the table under *More*."""

    def to_command(self) -> Command:
        """Return the stimulus."""
        options = read_response(self.response or {})
        return ResponseRequested(options, self.event_id, is_bare=True, is_lenient=True)


OWN_EVENTS: Final[tuple[type[ClientEvent], ...]] = (
    SessionUpdate,
    InputAudioBufferAppend,
    InputAudioBufferCommit,
    ConversationItemTruncate,
    ResponseCreate,
)
"""The events that this dialect reads in its own way."""
