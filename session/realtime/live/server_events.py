"""What the server says on the live wire: one model per event, with the wire's own names.

When each is sent stands in docs/live.md under the event's name.
"""

from typing import ClassVar, Literal

from session.realtime.server_objects import Absent, WireObject


class FormatObject(WireObject):
    """Encoding and rate of the audio, both ways."""

    type: Literal["audio/pcm", "audio/pcmu", "audio/pcma"]
    rate: int


class OutputObject(WireObject):
    """The voice that was asked for."""

    voice: Absent[str] = None


class AudioObject(WireObject):
    """The session's audio."""

    format: FormatObject
    output: OutputObject


class SessionResource(WireObject):
    """The session as it was started. Settings that change nothing here are said back."""

    id: str
    expires_at: int
    """Unix time in seconds; the end of the year 9999 where a session may last for ever."""
    model: str
    status: Literal["active"] = "active"
    audio: AudioObject
    instructions: Absent[str] = None
    """Those of the start. What was appended since is in the conversation, not in here."""
    delegation: Absent[object] = None
    input: Absent[object] = None
    safety_identifier: Absent[str] = None
    store: bool = False
    triggers: Absent[object] = None


class Usage(WireObject):
    """How much input there has been since the session began."""

    seconds: int


class LiveEvent(WireObject):
    """Base of every server event. No session of this wire can be resumed, so none is kept."""

    is_journaled: ClassVar[bool] = False
    type: str
    event_id: Absent[str] = None
    """Filled in by `to_text`."""
    client_event_id: Absent[str] = None

    def to_text(self, event_id: str, server_event_seq: int | None = None) -> str:
        """Return the JSON text of the frame."""
        del server_event_seq
        return self.model_copy(update={"event_id": event_id}).model_dump_json()


class SessionStarted(LiveEvent):
    """The session is open."""

    type: Literal["session.started"] = "session.started"
    session: SessionResource


class SessionUpdated(LiveEvent):
    """Answer to session.update."""

    type: Literal["session.updated"] = "session.updated"
    session: SessionResource


class SessionClosed(LiveEvent):
    """The last event."""

    type: Literal["session.closed"] = "session.closed"
    reason: Literal["close_requested", "expired", "connection_lost"]
    session: SessionResource
    usage: Usage


class InputAudioMuted(LiveEvent):
    """Answer to session.input_audio.mute."""

    type: Literal["session.input_audio.muted"] = "session.input_audio.muted"


class InputAudioUnmuted(LiveEvent):
    """Answer to session.input_audio.unmute."""

    type: Literal["session.input_audio.unmuted"] = "session.input_audio.unmuted"


class TimedEvent(LiveEvent):
    """Base of what has a place on the session's timeline."""

    start_ms: int
    """Milliseconds of input. Words have whole frames of 200, so that neighbours may share one."""
    end_ms: int


class ContextAppended(TimedEvent):
    """Answer to session.instructions.append, thinking.append and commentary.append."""

    type: Literal[
        "session.instructions.appended", "session.thinking.appended", "session.commentary.appended"
    ]


class TranscriptDelta(TimedEvent):
    """Some of what the user or the model has said."""

    type: Literal["session.input_transcript.delta", "session.output_transcript.delta"]
    delta: str


class OutputAudioDelta(LiveEvent):
    """Some of what the model says, as base64. The one event that has no `event_id`."""

    type: Literal["session.output_audio.delta"] = "session.output_audio.delta"
    delta: str

    def to_text(self, event_id: str, server_event_seq: int | None = None) -> str:
        """Return the JSON text of the frame."""
        del event_id, server_event_seq
        return self.model_dump_json()


class UsageUpdated(LiveEvent):
    """How much the session has used so far."""

    type: Literal["session.usage.updated"] = "session.usage.updated"
    usage: Usage


class ErrorDetails(WireObject):
    """What is wrong, and with which event of the client."""

    type: str
    code: str
    message: str
    param: Absent[str] = None
    client_event_id: Absent[str] = None


class ErrorEvent(LiveEvent):
    """Something was refused or failed; the session goes on unless session.closed follows."""

    type: Literal["error"] = "error"
    error: ErrorDetails


class InfoEvent(LiveEvent):
    """Something that the client may want to know: the session's end, soon or now."""

    type: Literal["info"] = "info"
    code: str
    """`session_expiring`, or just before `session.closed` why the session ends."""
    message: str
