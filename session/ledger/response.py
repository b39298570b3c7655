"""The response ledger: at most one answer in the making, each with one start and one terminal.

Rule 1: an answer is *reserved* when the model decides to speak or the client asks for it, and
        *visible* from its first event to the client on. Only visible answers have a terminal.
Rule 2: ids are never reused; an answer leaves the ledger at its terminal and does not come back.
Rule 3: units are spoken one after the other, in the order in which they were decided; text without
        speech and function calls wait for their place in that order.
"""

from collections import deque
from dataclasses import dataclass, field

from session.config import AudioFormat, ResponseOptions
from session.errors import LocalProtocolError
from session.fence import Fence
from session.ids import ItemId, ResponseId
from session.item_events import (
    ItemView,
)
from session.tools import FunctionCall
from session.unit import SegmentMetrics


@dataclass(frozen=True, slots=True)
class SpeechJob:
    """A unit whose speech waits for Stage1 or is being spoken."""

    seq: int
    is_turn_end: bool


@dataclass(frozen=True, slots=True)
class TextJob:
    """Text that is shown without being spoken."""

    text: str
    is_turn_end: bool


@dataclass(frozen=True, slots=True)
class CallJob:
    """A function call that comes after what is said before it."""

    call: FunctionCall


Job = SpeechJob | TextJob | CallJob


@dataclass(slots=True)
class Response:
    """One answer, from reservation to terminal."""

    response_id: ResponseId
    item_id: ItemId
    previous_item_id: ItemId | None
    fence: Fence
    options: ResponseOptions
    output_modalities: tuple[str, ...]
    output_format: AudioFormat
    is_visible: bool = False
    is_speak_decided: bool = False
    is_turn_ended: bool = False
    """The model has said all; the answer ends when its last unit is spoken."""
    is_cut: bool = False
    """It has no more tokens, and more to say."""
    transcript: str = ""
    metrics: list[SegmentMetrics] = field(default_factory=list)
    jobs: deque[Job] = field(default_factory=deque)
    speaking: SpeechJob | None = None
    message_index: int | None = None
    """Place of the message among the items of the answer; None while it has no message."""
    calls: list[ItemView] = field(default_factory=list)
    """Function calls that the client was told of."""

    @property
    def wants_audio(self) -> bool:
        """Whether this answer is spoken at all."""
        return "audio" in self.output_modalities

    @property
    def has_begun(self) -> bool:
        """Whether the client has been given anything of it."""
        return self.is_speak_decided or bool(self.calls)

    @property
    def is_idle(self) -> bool:
        """Nothing of it is waiting for Stage1 or being spoken."""
        return self.speaking is None and not self.jobs


@dataclass(slots=True)
class ResponseLedger:
    """The active answer and the memory of the last one."""

    active: Response | None = None
    last_id: ResponseId | None = None
    started: int = 0
    finished: int = 0

    def reserve(self, response: Response) -> Response:
        """Make `response` the active answer."""
        if self.active is not None:
            raise LocalProtocolError("response ledger: an answer is already active")
        self.active = response
        return response

    def show(self) -> Response:
        """The active answer becomes visible; exactly once."""
        response = self._need_active()
        if response.is_visible:
            raise LocalProtocolError("response ledger: already visible")
        response.is_visible = True
        self.started += 1
        self.last_id = response.response_id
        return response

    def finish(self) -> Response:
        """Take the active answer out, for its terminal or because it was never visible."""
        response = self._need_active()
        self.active = None
        if response.is_visible:
            self.finished += 1
        return response

    def validate(self) -> None:
        """Raise LocalProtocolError unless starts and terminals balance."""
        is_open = self.active is not None and self.active.is_visible
        if self.started - self.finished != int(is_open):
            raise LocalProtocolError("response ledger: a visible answer lost or doubled its end")

    def _need_active(self) -> Response:
        if self.active is None:
            raise LocalProtocolError("response ledger: no active answer")
        return self.active
