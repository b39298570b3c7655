"""Pieces of user input with everything that belongs to them: flags, place and camera frames."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from session.context import ContextMessage
from session.ids import ItemId
from session.tools import ToolOutput


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive PCM with one set of flags."""

    pcm: bytes
    is_speech: bool = False
    force_listen: bool = False
    video_frames: tuple[tuple[bytes, ...], ...] = field(default=(), repr=False)
    """Camera frames in groups, one group an append. They sit at the first byte."""
    start_byte: int = 0
    """Where the audio begins, in bytes of input since the session began."""

    def cut(self, n_bytes: int) -> tuple["Span", "Span"]:
        """Return the first `n_bytes` and the rest; frames go with the first byte."""
        rest = replace(
            self,
            pcm=self.pcm[n_bytes:],
            video_frames=(),
            start_byte=self.start_byte + n_bytes,
        )
        return replace(self, pcm=self.pcm[:n_bytes]), rest


@dataclass(frozen=True, slots=True)
class Turn:
    """A committed input that waits for the model; its bytes are still ours."""

    spans: tuple[Span, ...]
    text: str
    item_id: ItemId | None
    is_wanted: bool
    """An answer was asked for, so it may be submitted."""
    serial: int = -1
    """The open item that it was, if any; audio of that item which comes back belongs to it."""
    tool_outputs: tuple[ToolOutput, ...] = ()
    message: ContextMessage | None = None
    """Set for what the model is only told: nobody has to answer it."""
    messages: tuple[ContextMessage, ...] = ()
    """What the model is told before it."""
    is_bare: bool = False
    """An answer is asked for although nothing was said."""
    is_fresh: bool = False
    """Its answer sees `messages` and `text` alone."""
    is_whole: bool = False
    """Its audio came with its item and is no part of the stream."""

    @property
    def chars(self) -> int:
        """Size of its text, of whatever kind."""
        told = [*self.messages, *([] if self.message is None else [self.message])]
        outputs = sum(len(each.output) for each in self.tool_outputs)
        return len(self.text) + outputs + sum(len(each.text) for each in told)

    @property
    def n_bytes(self) -> int:
        """Audio bytes held."""
        return pcm_bytes(self.spans)


@dataclass(frozen=True, slots=True)
class Reservation:
    """Input on its way to the model."""

    spans: tuple[Span, ...]
    turn: Turn | None = None
    """Set when a committed turn is submitted whole."""
    serial: int = 0
    """The open item that the audio was taken from."""
    parts: tuple[Turn, ...] = ()
    """What `turn` was joined from, or the messages that go with a part of the open stream; what
    is rolled back comes back one by one."""
    is_heard_only: bool = False
    """Nobody has asked for an answer to the turn: the model shall hear it all the same."""

    @property
    def pcm(self) -> bytes:
        """All audio of the reservation."""
        return b"".join(span.pcm for span in self.spans)

    @property
    def is_speech(self) -> bool:
        """Whether any part was speech."""
        return any(span.is_speech for span in self.spans)

    @property
    def force_listen(self) -> bool:
        """Whether any part asked the model to listen."""
        return any(span.force_listen for span in self.spans)

    @property
    def messages(self) -> tuple[ContextMessage, ...]:
        """What the model is told before this input."""
        if self.turn is not None:
            return self.turn.messages
        return tuple(part.message for part in self.parts if part.message is not None)

    @property
    def video_frames(self) -> tuple[tuple[bytes, ...], ...]:
        """Groups of camera frames, in the order in which they came."""
        return tuple(group for span in self.spans for group in span.video_frames)


def pcm_bytes(spans: Iterable[Span]) -> int:
    """Bytes of audio."""
    return sum(len(span.pcm) for span in spans)


def frame_bytes(spans: Iterable[Span]) -> int:
    """Bytes of camera frames."""
    return sum(len(frame) for span in spans for group in span.video_frames for frame in group)


def frame_count(spans: Iterable[Span]) -> int:
    """Number of camera frames."""
    return sum(len(group) for span in spans for group in span.video_frames)
