"""What can happen to the sockets of a session; the rest is in `session.stimuli`."""

from dataclasses import dataclass, field

from session.ids import AttachmentId
from session.ledger.journal import CAN_REPLAY, ReplayOffer

FIRST_ATTACHMENT = AttachmentId("att_first")
"""Name of the only attachment of a session whose socket nobody else can take over."""


@dataclass(frozen=True, slots=True)
class EventAcked:
    """`session.event_ack`: everything up to this server event needs no replay."""

    server_event_seq: int
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class ResumeRequested:
    """A new socket wants to go on with this session (`session.resume`)."""

    attachment: AttachmentId
    resume_token: str = field(repr=False)
    last_server_event_seq: int = 0
    """The newest server event the client has read; 0 for none."""
    offer: ReplayOffer = CAN_REPLAY
    """Whether what it has not read can be sent again."""
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class SocketLost:
    """A client's socket is gone."""

    attachment: AttachmentId = FIRST_ATTACHMENT


@dataclass(frozen=True, slots=True)
class ReaderStalled:
    """The client does not read: more waits for it than the server keeps."""

    attachment: AttachmentId = FIRST_ATTACHMENT


SocketStimulus = EventAcked | ResumeRequested | SocketLost | ReaderStalled
"""What a socket can do to its session."""
