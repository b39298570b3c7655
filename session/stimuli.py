"""What can happen to a session. Every value here enters through `DuplexSession.handle`.

Client commands carry the client's `event_id` so that an error can name it. What a stage answers
carries the fence it was asked with; the kernel drops it unless that fence is current. What comes
over a socket is wrapped in `Received`; the kernel drops it unless that attachment is current.
"""

from dataclasses import dataclass

from session.config import ConfigPatch, ResponseOptions
from session.errors import DuplexError
from session.fence import Fence
from session.ids import AttachmentId, ItemId, ResponseId
from session.service_stimuli import ServiceOrder
from session.socket_stimuli import (
    FIRST_ATTACHMENT,
    EventAcked,
    SocketStimulus,
)
from session.stream_stimuli import ContextAppended, InputMuteSet
from session.unit import SpeechChunk, UnitResult

# --- from the client ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenRequested:
    """The first event of a session: lease the stages. Its settings came with the constructor."""

    event_id: str | None = None
    attachment: AttachmentId = FIRST_ATTACHMENT
    is_resumable: bool = False
    """Whether the client's dialect can go on with the session on another socket."""


@dataclass(frozen=True, slots=True)
class SessionConfigured:
    """`session.update`."""

    patch: ConfigPatch
    event_id: str | None = None
    is_lenient: bool = False
    """What the model can not do stays as it was, instead of being refused."""


@dataclass(frozen=True, slots=True)
class SpeechScore:
    """One voice-activity window: the probability that it holds speech, and where it ends."""

    probability: float
    end_sample: int
    """Samples since the session began, at 16 kHz."""


@dataclass(frozen=True, slots=True)
class AudioAppended:
    """`input_audio_buffer.append`, already converted to 16 kHz PCM16."""

    pcm: bytes
    wire_bytes: int = 0
    """Size the client sent, for backpressure."""
    scores: tuple[SpeechScore, ...] = ()
    """Voice-activity windows that this append completed; empty when detection is off."""
    is_speech: bool | None = None
    """The client's own opinion, or a level heuristic's; None when there is none."""
    force_listen: bool = False
    force_barge_in: bool = False
    overlap_action: str | None = None
    """One of barge_in, listen, drop when the client decides itself."""
    text_hint: str = ""
    video_frames: tuple[bytes, ...] = ()
    """JPEG or PNG images that belong to the unit which this append closes."""
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class TextAppended:
    """`input.text.append`: joins the open input item."""

    text: str
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class InputCommitted:
    """`input_audio_buffer.commit` or `input.commit`."""

    create_response: bool | None = None
    """None: the session's mode decides."""
    is_speech: bool | None = None
    """False declares silence."""
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class InputCleared:
    """`input_audio_buffer.clear`."""

    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class InputCancelled:
    """`input.cancel`."""

    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class ResponseRequested:
    """`response.create`."""

    options: ResponseOptions
    event_id: str | None = None
    is_bare: bool = False
    """The model is asked even if nothing has been committed."""
    is_lenient: bool = False
    """A voice that the model does not have is the session's voice, instead of being refused."""


@dataclass(frozen=True, slots=True)
class ResponseCancelRequested:
    """`response.cancel`."""

    response_id: ResponseId | None = None
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class OutputClearRequested:
    """`output_audio_buffer.clear`."""

    response_id: ResponseId | None = None
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class PlaybackAcked:
    """`playback.ack`."""

    played_ms: int
    committed_ms: int | None = None
    response_id: ResponseId | None = None
    item_id: ItemId | None = None
    event_id: str | None = None
    truncates: bool = False
    """Nothing after this was heard, whatever is acknowledged later."""


@dataclass(frozen=True, slots=True)
class ItemCreated:
    """`conversation.item.create`: words, a user's 16 kHz PCM16, or, with `call_id`, an output."""

    role: str
    text: str
    item_id: ItemId | None = None
    previous_item_id: ItemId | None = None
    call_id: str | None = None
    event_id: str | None = None
    pcm: bytes = b""


@dataclass(frozen=True, slots=True)
class ItemRetrieved:
    """`conversation.item.retrieve`."""

    item_id: ItemId
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class ItemDeleted:
    """`conversation.item.delete`."""

    item_id: ItemId
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class ItemTruncated:
    """`conversation.item.truncate`."""

    item_id: ItemId
    audio_end_ms: int
    content_index: int = 0
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class BargedIn:
    """`barge_in`."""

    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class TurnSignalled:
    """`turn.signal` with a local marker such as user_started."""

    signal: str
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatReceived:
    """`session.heartbeat`."""

    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class CloseRequested:
    """`session.close`, or the server wants the session closed."""

    reason: str = "client_close"
    event_id: str | None = None
    drain_s: float = 0.0
    """An answer in progress may take so long to come to its end; 0: it is cut off."""


@dataclass(frozen=True, slots=True)
class EventRefused:
    """A client event that never became a command; it keeps its place in the wire order."""

    error: DuplexError
    event_id: str | None = None


# --- from the stages --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StagesOpened:
    """Both stages hold a binding for this session."""

    fence: Fence


@dataclass(frozen=True, slots=True)
class OpenFailed:
    """The session was not admitted or a stage could not open; nothing is held."""

    fence: Fence
    error: DuplexError


@dataclass(frozen=True, slots=True)
class UnitFinished:
    """Stage0 has answered one unit."""

    fence: Fence
    seq: int
    result: UnitResult


@dataclass(frozen=True, slots=True)
class UnitFailed:
    """Stage0 could not process one unit."""

    fence: Fence
    seq: int
    error: DuplexError


@dataclass(frozen=True, slots=True)
class SpeechArrived:
    """Stage1 made a chunk of the speech of unit `seq`."""

    fence: Fence
    seq: int
    chunk: SpeechChunk


@dataclass(frozen=True, slots=True)
class SpeechFinished:
    """Stage1 has spoken all of unit `seq`."""

    fence: Fence
    seq: int


@dataclass(frozen=True, slots=True)
class SpeechFailed:
    """Stage1 could not speak unit `seq`."""

    fence: Fence
    seq: int
    error: DuplexError


@dataclass(frozen=True, slots=True)
class StagesConfigured:
    """Both stages acknowledged a configuration."""

    fence: Fence
    generation: int


@dataclass(frozen=True, slots=True)
class ConfigureFailed:
    """A stage refused a configuration; both keep the old one."""

    fence: Fence
    generation: int
    error: DuplexError


@dataclass(frozen=True, slots=True)
class StageLost:
    """A lease is broken: that stage's state for this session is gone."""

    stage: str
    error: DuplexError


@dataclass(frozen=True, slots=True)
class StagesReleased:
    """Both stages confirmed that they hold nothing of this session any more.

    About a closed fence, so never judged against the current one.
    """

    fence: Fence


@dataclass(frozen=True, slots=True)
class ReleaseFailed:
    """A stage did not confirm the release; it may hold something still. About a closed fence."""

    fence: Fence
    error: DuplexError


@dataclass(frozen=True, slots=True)
class Ticked:
    """A deadline asked for by `WakeAt` has come."""


SilentCommand = (
    SessionConfigured
    | TextAppended
    | InputCommitted
    | InputCleared
    | InputCancelled
    | ResponseRequested
    | ResponseCancelRequested
    | OutputClearRequested
    | PlaybackAcked
    | ItemCreated
    | ItemRetrieved
    | ItemDeleted
    | ItemTruncated
    | BargedIn
    | TurnSignalled
    | HeartbeatReceived
    | ContextAppended
    | InputMuteSet
    | EventRefused
)
"""What a client can tell an open session besides audio."""

ClientCommand = SilentCommand | AudioAppended
"""What a client can tell an open session."""

AttachedCommand = ClientCommand | CloseRequested | EventAcked
"""Everything that counts only when it comes over the current attachment."""


@dataclass(frozen=True, slots=True)
class Received:
    """A client's command, and the attachment that it came over."""

    attachment: AttachmentId
    command: AttachedCommand


Stimulus = (
    OpenRequested
    | Received
    | ClientCommand
    | CloseRequested
    | ServiceOrder
    | SocketStimulus
    | StagesOpened
    | OpenFailed
    | UnitFinished
    | UnitFailed
    | SpeechArrived
    | SpeechFinished
    | SpeechFailed
    | StagesConfigured
    | ConfigureFailed
    | StageLost
    | StagesReleased
    | ReleaseFailed
    | Ticked
)
