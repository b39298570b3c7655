"""What a client shall learn, before any dialect gives it a name and a shape.

A dialect projects each of these to zero or more server events at the moment of sending. Events
that carry output name the fence under which they were made: an old epoch's output is dropped
when it would be sent (`is_output`), a terminal never is.
"""

from dataclasses import dataclass, field
from typing import Final

from session.config import AudioFormat
from session.errors import DuplexError
from session.fence import Fence
from session.ids import ItemId, ResponseId
from session.item_events import (
    InputTranscribed,
    ItemAdded,
    ItemCut,
    ItemDone,
    ItemRemoved,
    ItemShown,
    ItemView,
    TextMark,
)
from session.snapshot import Playback, SessionSnapshot
from session.socket_events import (
    ResyncRequired,
    SessionExpiring,
    SessionReplaced,
    SessionResumed,
)
from session.stream_events import ContextAccepted, InputCounted, InputMuteChanged
from session.unit import SegmentMetrics


@dataclass(frozen=True, slots=True)
class SessionCreated:
    """The session is open."""

    session: SessionSnapshot
    attachment_generation: int = 1
    resume_token: str | None = field(default=None, repr=False)
    """Opens the session on another socket; None where that is not possible."""


@dataclass(frozen=True, slots=True)
class SessionUpdated:
    """The session's settings are these now."""

    session: SessionSnapshot
    client_event_id: str | None = None
    """The client's name for the event that asked for it."""


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """Terminal: closed on request, after both stages released it."""

    fence: Fence
    reason: str
    client_event_id: str | None = None
    """The client's name for what asked for the end."""


@dataclass(frozen=True, slots=True)
class SessionExpired:
    """Terminal: the server ended the session."""

    fence: Fence
    reason: str


@dataclass(frozen=True, slots=True)
class HeartbeatAnswered:
    """The session is alive."""

    fence: Fence


@dataclass(frozen=True, slots=True)
class UserSpeechStarted:
    """Onset of user speech, prefix padding included."""

    audio_start_ms: int
    item_id: ItemId


@dataclass(frozen=True, slots=True)
class UserSpeechStopped:
    """Offset of user speech; always follows one UserSpeechStarted."""

    audio_end_ms: int
    item_id: ItemId


@dataclass(frozen=True, slots=True)
class InputItemCommitted:
    """The input buffer became a user item."""

    fence: Fence
    item_id: ItemId
    previous_item_id: ItemId | None
    history_len: int
    is_empty: bool = False
    is_speech: bool = True
    expects_no_response: bool = False
    is_overlap_ack: bool = False
    is_deferred: bool = False
    turn: int | None = None
    """The model turn that the item reserved when it began over an answer; None: the fence's."""


@dataclass(frozen=True, slots=True)
class InputTimedOut:
    """The user has said nothing since the last answer was heard: that silence is an item now."""

    audio_start_ms: int
    audio_end_ms: int
    item_id: ItemId


@dataclass(frozen=True, slots=True)
class InputBufferCleared:
    """The open input was dropped."""


@dataclass(frozen=True, slots=True)
class ResponseStarted:
    """First event of a visible answer. Its item and content part come into being with it."""

    fence: Fence
    response_id: ResponseId
    item_id: ItemId
    previous_item_id: ItemId | None
    output_modalities: tuple[str, ...]
    output_format: AudioFormat
    metadata: tuple[tuple[str, str], ...] = ()
    is_out_of_band: bool = False
    has_message: bool = True
    """False where the model may call a tool instead: AnswerItemOpened follows if it speaks."""


@dataclass(frozen=True, slots=True)
class AnswerItemOpened:
    """The message of an answer that has begun without one, before its first output."""

    response_id: ResponseId
    item_id: ItemId
    previous_item_id: ItemId | None
    output_index: int
    is_text_only: bool
    is_out_of_band: bool = False


@dataclass(frozen=True, slots=True)
class FunctionCalled:
    """The model calls a function; a whole item of the answer, from its beginning to its end."""

    response_id: ResponseId
    item: ItemView
    previous_item_id: ItemId | None
    output_index: int
    is_out_of_band: bool = False


@dataclass(frozen=True, slots=True)
class SpeakDecided:
    """The model chose to speak; at most once a response, before its first output."""

    fence: Fence
    response_id: ResponseId
    item_id: ItemId


@dataclass(frozen=True, slots=True)
class SpeechDelta:
    """One audio chunk and exactly its text. For a text-only answer `pcm` is empty."""

    fence: Fence
    response_id: ResponseId
    item_id: ItemId
    pcm: bytes
    transcript: str
    audio_ms: int
    """Cumulative audio of this response, this chunk included."""
    marks: tuple[TextMark, ...]
    playback: Playback
    output_format: AudioFormat
    is_turn_end: bool = False
    is_text_only: bool = False
    metrics: tuple[SegmentMetrics, ...] = ()


SAID: Final = frozenset({"completed", "incomplete"})
"""How answers end that nobody stopped: all that the model has said of them is sent, and heard."""


@dataclass(frozen=True, slots=True)
class ResponseFinished:
    """The one terminal of an answer.

    The dialect closes whatever it has opened for this response: audio, transcript, part, items.
    """

    fence: Fence
    """The fence under which the answer began."""
    current: Fence
    response_id: ResponseId
    item: ItemView
    previous_item_id: ItemId | None
    status: str
    """completed, cancelled, failed or incomplete."""
    reason: str
    playback: Playback
    is_committed: bool
    output_modalities: tuple[str, ...]
    metadata: tuple[tuple[str, str], ...] = ()
    is_out_of_band: bool = False
    metrics: tuple[SegmentMetrics, ...] = ()
    message_index: int | None = 0
    """Place of `item` among the answer's items; None for an answer without a message."""
    calls: tuple[ItemView, ...] = ()
    """The answer's function calls, in order."""
    input_audio_ms: int = 0
    """The user's audio that the model took in since the answer before this one."""

    @property
    def was_said(self) -> bool:
        """Whether all that there is of it was sent."""
        return self.status in SAID


@dataclass(frozen=True, slots=True)
class ListenDecided:
    """The model chose to listen at a unit boundary, or the server says it is listening."""

    fence: Fence
    reason: str
    is_model_listen: bool
    response_id: ResponseId | None = None


@dataclass(frozen=True, slots=True)
class OutputBufferCleared:
    """The client must drop audio it has not played."""

    response_id: ResponseId


@dataclass(frozen=True, slots=True)
class PlaybackAdvanced:
    """Answer to playback.ack."""

    fence: Fence
    response_id: ResponseId
    item_id: ItemId
    playback: Playback
    is_history_committed: bool
    is_truncated: bool = False


@dataclass(frozen=True, slots=True)
class OverlapDecided:
    """What was done about user speech during an answer."""

    fence: Fence
    policy: str
    action: str
    reason: str
    duration_ms: int
    overlap_speech_ms: int


@dataclass(frozen=True, slots=True)
class TurnMoved:
    """Answer to a local turn.signal."""

    fence: Fence
    signal: str
    turn_state: str


@dataclass(frozen=True, slots=True)
class ErrorRaised:
    """Something was refused or failed."""

    error: DuplexError
    event_id: str | None = None
    fence: Fence | None = field(default=None)


Event = (
    SessionCreated
    | SessionResumed
    | SessionReplaced
    | ResyncRequired
    | SessionExpiring
    | SessionUpdated
    | SessionClosed
    | SessionExpired
    | HeartbeatAnswered
    | UserSpeechStarted
    | UserSpeechStopped
    | InputItemCommitted
    | InputTimedOut
    | InputBufferCleared
    | ItemAdded
    | ItemDone
    | InputTranscribed
    | ItemShown
    | ItemRemoved
    | ItemCut
    | ResponseStarted
    | AnswerItemOpened
    | FunctionCalled
    | SpeakDecided
    | SpeechDelta
    | ResponseFinished
    | ListenDecided
    | OutputBufferCleared
    | PlaybackAdvanced
    | OverlapDecided
    | TurnMoved
    | InputCounted
    | ContextAccepted
    | InputMuteChanged
    | ErrorRaised
)


def output_fence(event: Event) -> Fence | None:
    """Fence of streaming output, which is dropped when stale; None for everything else.

    ResponseStarted is not among them: its terminal will follow and must not stand alone.
    """
    match event:
        case SpeakDecided() | SpeechDelta() | ListenDecided():
            return event.fence
        case _:
            return None
