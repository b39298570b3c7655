"""Typed server events: what the client hears from the service.

Rule 1: every event keeps its wire name in `type`, when it was received in `received_s` (the
        client's monotonic clock), and its JSON in `raw`, so that unknown fields are not lost.
Rule 2: a type that is not known here is an `UnknownEvent`, never an error.
Rule 3: the duplex names (`response.audio.delta`) and the newer ones
        (`response.output_audio.delta`) are the same classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

JsonObject = Mapping[str, object]

LOST = "lost"
"""Status of a response that has lost a part on the way to the client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEvent:
    """One event from the server."""

    type: str
    event_id: str = ""
    seq: int | None = None
    """`server_event_seq`, where the server numbers its events."""
    received_s: float = 0.0
    raw: JsonObject = field(default_factory=dict, repr=False)
    """The event as it came; without the audio of an audio delta."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownEvent(ServerEvent):
    """An event of a type that this client does not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorEvent(ServerEvent):
    """`error`: something was refused or failed."""

    code: str
    message: str
    error_type: str = ""
    retryable: bool = False
    caused_by: str = ""
    """The client's `event_id` of the request in question, when the server names it."""


# --- session --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCreated(ServerEvent):
    """`session.created`."""

    session_id: str
    model: str = ""
    session: JsonObject = field(default_factory=dict, repr=False)
    attachment_generation: int = 0
    resume_token: str = field(default="", repr=False)
    """Lets another socket take the session up; empty where the server does not resume."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLost(ServerEvent):
    """The client's own, `connection.lost`: the session lives on and is being taken up again."""

    close_code: int
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed(ServerEvent):
    """`session.resumed`: the session goes on; the events of the gap follow."""

    session_id: str
    session: JsonObject = field(default_factory=dict, repr=False)
    attachment_generation: int = 0
    resume_token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsLost(ServerEvent):
    """The client's own, `events.lost`: the gap was so long that the server did not keep these.

    It comes right after `Resumed`. An answer that has lost a part ends with a `ResponseDone` of
    status `lost`, made by the client too, and nothing more is given of it.
    """

    first_seq: int
    last_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionReplaced(ServerEvent):
    """`session.replaced`: another socket has taken the session over; this one is done."""

    session_id: str = ""
    attachment_generation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ResyncRequired(ServerEvent):
    """`session.resync_required`: events that were not read are gone at the server."""

    reason: str = ""
    oldest_seq: int | None = None
    newest_seq: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionExpiring(ServerEvent):
    """`session.expiring`: the server will end the session in this time."""

    reason: str = ""
    expires_in_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionUpdated(ServerEvent):
    """`session.updated`."""

    session: JsonObject = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionClosed(ServerEvent):
    """`session.closed`: the last event of a session that was closed on request."""

    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionExpired(ServerEvent):
    """`session.expired`: the last event of a session that the server ended."""

    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAck(ServerEvent):
    """`session.heartbeat_ack`."""


# --- the user's side ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechStarted(ServerEvent):
    """`input_audio_buffer.speech_started`."""

    audio_start_ms: int = 0
    item_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechStopped(ServerEvent):
    """`input_audio_buffer.speech_stopped`."""

    audio_end_ms: int = 0
    item_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputTimedOut(ServerEvent):
    """`input_audio_buffer.timeout_triggered`."""

    audio_start_ms: int = 0
    audio_end_ms: int = 0
    item_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputCommitted(ServerEvent):
    """`input_audio_buffer.committed`."""

    item_id: str = ""
    expects_no_response: bool = False
    is_deferred: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InputCleared(ServerEvent):
    """`input_audio_buffer.cleared`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputTranscribed(ServerEvent):
    """`conversation.item.input_audio_transcription.completed`: what the user said."""

    item_id: str = ""
    transcript: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemEvent(ServerEvent):
    """`conversation.item.*`: added, created, done, retrieved, deleted or truncated."""

    item_id: str = ""
    item: JsonObject = field(default_factory=dict, repr=False)
    audio_end_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapDecision(ServerEvent):
    """`overlap.decision`: what was done about user speech during an answer."""

    action: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEvent(ServerEvent):
    """`turn.event`: answer to a local `turn.signal`."""

    signal: str = ""
    turn_state: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaybackAcknowledged(ServerEvent):
    """`playback.acknowledged`."""

    item_id: str = ""
    played_ms: int = 0
    committed_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitsUpdated(ServerEvent):
    """`rate_limits.updated`."""


# --- the assistant's side -------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseEvent(ServerEvent):
    """An event that belongs to one response."""

    response_id: str
    stage_metrics: JsonObject | None = None
    """Engine timings from `metadata.vllm_omni.stage_metrics`; not on the client's clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseCreated(ResponseEvent):
    """`response.created`."""

    metadata: JsonObject = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseSpeak(ResponseEvent):
    """`response.speak`: the model chose to speak."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseListen(ResponseEvent):
    """`response.listen`: the model chose to listen. `response_id` is empty without a response."""

    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioDelta(ResponseEvent):
    """`response.audio.delta`: one chunk of speech, decoded from base64."""

    audio: bytes = field(repr=False)
    encoding: str
    rate_hz: int
    duration_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioDone(ResponseEvent):
    """`response.audio.done`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptDelta(ResponseEvent):
    """`response.audio_transcript.delta`: the text of one chunk of speech."""

    delta: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptDone(ResponseEvent):
    """`response.audio_transcript.done`."""

    transcript: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta(ResponseEvent):
    """`response.text.delta`."""

    delta: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDone(ResponseEvent):
    """`response.text.done`."""

    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCallDelta(ResponseEvent):
    """`response.function_call_arguments.delta`."""

    item_id: str = ""
    call_id: str = ""
    delta: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCalled(ResponseEvent):
    """`response.function_call_arguments.done`: the model calls a tool."""

    item_id: str = ""
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    """JSON, as the model wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPartEvent(ResponseEvent):
    """`response.output_item.*` and `response.content_part.*`: structure around the content."""

    item_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseDone(ResponseEvent):
    """`response.done`: the one terminal of a response."""

    status: str = ""
    """completed, cancelled, failed or incomplete; lost: what was left of it is (`EventsLost`)."""
    reason: str = ""

    @property
    def is_cut(self) -> bool:
        """Whether what has not been played of it is not to be played any more."""
        return self.status in ("cancelled", LOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputAudioCleared(ResponseEvent):
    """`output_audio_buffer.cleared`: drop what has not been played."""
