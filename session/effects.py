"""What a session asks of the world, performed in order; slow effects come back as stimuli."""

from dataclasses import dataclass

from session.config import RuntimeConfig
from session.errors import ClientError
from session.events import Event
from session.fence import Fence
from session.ids import AttachmentId, OperationId
from session.socket_events import ResyncRequired, SessionReplaced, SessionResumed
from session.unit import Unit


@dataclass(frozen=True, slots=True)
class Emit:
    """Queue one event for the client."""

    event: Event


@dataclass(frozen=True, slots=True)
class OpenStages:
    """Lease both stages and open the session there. Answer: StagesOpened or OpenFailed."""

    fence: Fence
    runtime: RuntimeConfig


@dataclass(frozen=True, slots=True)
class SubmitUnit:
    """Give one unit to Stage0. Answer: UnitFinished or UnitFailed."""

    fence: Fence
    seq: int
    operation_id: OperationId
    unit: Unit
    config_generation: int


@dataclass(frozen=True, slots=True)
class Synthesize:
    """Hand the speech of unit `seq` to Stage1.

    Answer: SpeechArrived any number of times, then SpeechFinished or SpeechFailed.
    """

    fence: Fence
    seq: int


@dataclass(frozen=True, slots=True)
class CancelStages:
    """Tell both stages that `cancelled` is over and `current` holds. No answer is waited for.

    `heard` is the part of the cancelled turn's text that the user has heard. `consumed_seq` is the
    last unit whose answer counted: one that Stage0 has finished since will be given to it again.
    """

    cancelled: Fence
    current: Fence
    heard: str
    consumed_seq: int


@dataclass(frozen=True, slots=True)
class ConfigureStages:
    """Validate and stage a new configuration. Answer: StagesConfigured or ConfigureFailed."""

    fence: Fence
    runtime: RuntimeConfig
    generation: int


@dataclass(frozen=True, slots=True)
class CloseStages:
    """Release everything at both stages. Answer: StagesReleased or ReleaseFailed."""

    fence: Fence


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Answer with Ticked at `at_s` on the session's clock. Replaces any earlier WakeAt."""

    at_s: float


@dataclass(frozen=True, slots=True)
class CloseSocket:
    """Close the client's socket after everything queued has been sent."""

    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class AttachSocket:
    """Send the session's output to this attachment from now on.

    First `resumed`, then what has been sent after `after_seq` and was not read, then what comes.
    Whoever was attached is sent `replaced`, if there was anybody, and its socket is closed.
    """

    attachment: AttachmentId
    resumed: SessionResumed
    after_seq: int
    replaced: SessionReplaced | None


@dataclass(frozen=True, slots=True)
class RefuseSocket:
    """Tell a socket that it does not get the session. It is not attached."""

    attachment: AttachmentId
    answer: ClientError | ResyncRequired
    event_id: str | None


@dataclass(frozen=True, slots=True)
class DetachSocket:
    """Keep the session's output for a client that may come back.

    With a `close` the socket is still there and is closed with it.
    """

    attachment: AttachmentId
    close: CloseSocket | None = None


@dataclass(frozen=True, slots=True)
class TrimJournal:
    """Forget output up to this number: the client has read it."""

    upto_seq: int


Output = Emit | CloseSocket | AttachSocket | DetachSocket | TrimJournal
"""Effects on what the client is sent."""

StageCall = OpenStages | SubmitUnit | Synthesize | CancelStages | ConfigureStages | CloseStages
"""Effects on the stages."""

Effect = Output | RefuseSocket | StageCall | WakeAt
