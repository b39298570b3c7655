"""What a client's text can mean: a stimulus for the session, or a command for the gateway."""

from dataclasses import dataclass, field

from session.config import AudioFormat
from session.ids import SessionId
from session.socket_stimuli import EventAcked
from session.stimuli import (
    CloseRequested,
    ItemCreated,
    SilentCommand,
)


@dataclass(frozen=True, slots=True)
class AudioReceived:
    """`input_audio_buffer.append` before its audio is converted; becomes AudioAppended."""

    data: bytes = field(repr=False)
    format: AudioFormat | None
    """None: the session's input format."""
    wire_bytes: int
    """Size of the base64 text and the frames, for backpressure."""
    is_speech: bool | None = None
    """The client's own opinion; None when it gave none."""
    force_listen: bool = False
    force_barge_in: bool = False
    overlap_action: str | None = None
    """One of barge_in, listen, drop."""
    text_hint: str = ""
    event_id: str | None = None
    video_frames: tuple[bytes, ...] = field(default=(), repr=False)
    """JPEG or PNG images that belong to the unit which this append closes."""


@dataclass(frozen=True, slots=True)
class SessionResumeAsked:
    """`session.resume`: this socket wants to go on with an open session."""

    session_id: SessionId
    resume_token: str = field(repr=False)
    last_server_event_seq: int = 0
    """The newest server event the client has seen; 0 for none."""
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class ItemReceived:
    """`conversation.item.create` of a user's audio before that is converted."""

    item: ItemCreated
    audio: bytes = field(repr=False)
    """In the session's input format, all of it."""


Command = (
    AudioReceived | ItemReceived | SessionResumeAsked | EventAcked | SilentCommand | CloseRequested
)
