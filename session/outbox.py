"""What leaves a session: events in order, projected when sent, kept until a client has read them.

Rule 1: an event is projected once: when it is sent or, while nobody is attached, at once.
        Projecting gives each frame its id and its number.
Rule 2: output whose fence is stale at that moment is dropped. It gets no number and is not kept
        for replay. A terminal is never dropped.
Rule 3: frames with a number stay in the journal, so that a client which comes back is sent what it
        has not read, as it was, and then what followed.
Rule 4: only the attached client is sent anything, but for the farewell of one that was replaced.
Rule 5: where speech is paced, it waits for its time, and with it what the session says of answers
        and its end. Everything else goes past. Speech that has become stale meanwhile is dropped.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, assert_never

from session.config import SessionLimits
from session.effects import (
    AttachSocket,
    CloseSocket,
    DetachSocket,
    Emit,
    Output,
    TrimJournal,
)
from session.errors import ClientError
from session.events import (
    AnswerItemOpened,
    ErrorRaised,
    Event,
    FunctionCalled,
    ResponseFinished,
    ResponseStarted,
    SessionClosed,
    SessionExpired,
    SpeakDecided,
    SpeechDelta,
    output_fence,
)
from session.fence import Fence, FenceVerdict
from session.ids import AttachmentId, IdFactory
from session.ledger.journal import ReplayJournal, ReplayOffer
from session.pacing import Pace, frames
from session.socket_events import ResyncRequired

EVENT_BYTES: Final = 1_024
"""What an event is taken to weigh on the wire besides its audio."""
REPLACED: Final = CloseSocket(1000, "session_replaced")


BEHIND_SPEECH: Final = (
    CloseSocket,
    ResponseStarted,
    AnswerItemOpened,
    SpeakDecided,
    FunctionCalled,
    ResponseFinished,
    SessionClosed,
    SessionExpired,
)
"""What does not overtake speech that is held back."""


class WireEvent(Protocol):
    """One event of a dialect, ready to be written."""

    @property
    def is_journaled(self) -> bool:
        """Whether it is numbered and kept for replay."""
        ...

    def to_text(self, event_id: str, server_event_seq: int | None = None) -> str:
        """Return the JSON text of the frame."""
        ...


class Projector(Protocol):
    """A dialect: turns an event into what goes over the wire."""

    def project(self, event: Event) -> Sequence[WireEvent]:
        """Return the event's wire events in order."""
        ...


@dataclass(frozen=True, slots=True)
class Frame:
    """One text frame to send."""

    text: str
    at_s: float
    """When the cause of it came in."""
    speech: SpeechDelta | None = None
    """The piece of speech that it is the end of."""
    is_refusal: bool = False
    """Whether it says that the client did wrong."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    content: Event | CloseSocket
    at_s: float
    n_bytes: int


class Outbox:
    """One session's way out."""

    def __init__(
        self,
        projector: Projector,
        *,
        ids: IdFactory,
        limits: SessionLimits,
        attachment: AttachmentId,
        keeps_journal: bool,
        pace: Pace | None = None,
    ) -> None:
        self._projector = projector
        self._ids = ids
        self._max_bytes = limits.max_output_bytes_per_session
        self._max_events = limits.max_output_events_per_session
        self._keeps_journal = keeps_journal
        self._attached: AttachmentId | None = attachment
        self._lanes: dict[AttachmentId, deque[Frame | CloseSocket]] = {attachment: deque()}
        self._queue: deque[_Waiting] = deque()
        self._pace = pace
        self._paced: deque[_Waiting] = deque()
        """What is said, and what may not overtake it. Its size is that of the model's answers, and
        no fault of the reader."""
        self._queued_bytes = 0
        self._sending_bytes = 0
        self.journal = ReplayJournal(
            limits.resume_replay_max_bytes_per_session, limits.resume_replay_ttl_s
        )

    @property
    def attached(self) -> AttachmentId | None:
        """Whom it is sent to; None while nobody is attached, or the socket is gone already."""
        return self._attached if self._attached in self._lanes else None

    @property
    def is_over_bound(self) -> bool:
        """Whether more waits than a client that reads would leave."""
        is_many = len(self._queue) > self._max_events
        return is_many or self.waiting_bytes > self._max_bytes

    @property
    def waiting_bytes(self) -> int:
        """What waits to be sent, as it weighs on the wire."""
        return self._queued_bytes + self._sending_bytes

    def has_left(self, attachment: AttachmentId) -> bool:
        """Whether nothing but a farewell will come for `attachment`."""
        return attachment != self._attached

    def perform(self, effect: Output, *, fence: Fence, at_s: float, now: float) -> None:
        """Apply one effect on what the client is sent; `fence` is the session's present one."""
        match effect:
            case Emit(event=event):
                self._put(event, fence, at_s, now)
            case CloseSocket():
                self._put(effect, fence, at_s, now)
            case AttachSocket():
                self._attach(effect, at_s)
            case DetachSocket():
                self._detach(effect, fence, now)
            case TrimJournal(upto_seq=seq):
                self.journal.acknowledge(seq)
            case _:
                assert_never(effect)

    def offer(self, after_seq: int, *, now: float) -> ReplayOffer:
        """Say whether a client that has read up to `after_seq` can be sent the rest."""
        return self.journal.offer(after_seq, now=now)

    def next(
        self, attachment: AttachmentId, *, fence: Fence, now: float
    ) -> Frame | CloseSocket | None:
        """Take what is to be sent over `attachment` next; asked for when the last one has left.

        None means nothing now: nothing waits, or this attachment is not the session's any more.
        """
        lane = self._lanes.get(attachment)
        if lane is None:
            return None
        while not lane and attachment == self._attached:
            self._sending_bytes = 0
            if self._queue:
                self._project_next(lane, fence, now)
            elif not self._pass_paced(fence, now):
                return None
        return lane.popleft() if lane else None

    @property
    def due_at_s(self) -> float | None:
        """When what is held back may go; None when nothing is."""
        content = self._paced[0].content if self._paced else None
        if self._pace is None or not isinstance(content, SpeechDelta):
            return None
        return self._pace.due_s(content)

    def leave(self, attachment: AttachmentId) -> None:
        """The socket of `attachment` is gone: nothing can be sent over it any more."""
        self._lanes.pop(attachment, None)

    # --- in -----------------------------------------------------------------------------------

    def _put(self, content: Event | CloseSocket, fence: Fence, at_s: float, now: float) -> None:
        waiting = _Waiting(content, at_s, _weight(content))
        if self._attached is None:
            self._write_down(waiting, fence, now)
            return
        if self._pace is not None and isinstance(content, SpeechDelta):
            self._paced.extend(_Waiting(frame, at_s, 0) for frame in frames(content))
            return
        if isinstance(content, CloseSocket):
            # Whoever closes has waited for what is to be heard, or does not want it to be.
            self._paced = deque(
                held for held in self._paced if not isinstance(held.content, SpeechDelta)
            )
        if self._pace is not None and isinstance(content, BEHIND_SPEECH):
            self._paced.append(_Waiting(content, at_s, 0))
            return
        self._queue.append(waiting)
        self._queued_bytes += waiting.n_bytes

    def _attach(self, effect: AttachSocket, at_s: float) -> None:
        old = self._attached
        if old in self._lanes and effect.replaced is not None:
            farewell = self._plain(effect.replaced, at_s)
            self._lanes[old] = deque([*farewell, REPLACED])
        lane: deque[Frame | CloseSocket] = deque(self._plain(effect.resumed, at_s))
        lane.extend(Frame(text, at_s) for text in self.journal.after(effect.after_seq))
        self._lanes[effect.attachment] = lane
        self._attached = effect.attachment
        self._sending_bytes = 0

    def _detach(self, effect: DetachSocket, fence: Fence, now: float) -> None:
        lane = self._lanes.pop(effect.attachment, None)
        if lane is not None and effect.close is not None:  # else its socket is gone already
            self._lanes[effect.attachment] = deque([effect.close])
        self._attached = None
        self._sending_bytes = self._queued_bytes = 0
        for held in (self._queue, self._paced):
            while held:
                self._write_down(held.popleft(), fence, now)

    # --- out ----------------------------------------------------------------------------------

    def _pass_paced(self, fence: Fence, now: float) -> bool:
        """Let the first of what is held back go on, if its time has come; say whether it has."""
        if not self._paced:
            return False
        content = self._paced[0].content
        if self._pace is not None and isinstance(content, SpeechDelta):
            due_s = self._pace.due_s(content)
            is_dropped = _is_stale(content, fence)
            if not is_dropped and now < due_s:
                return False
            if not is_dropped:
                self._pace.send(content, now)
                # Whoever measures how long it took to send does not count the pace.
                self._paced[0] = replace(self._paced[0], at_s=max(self._paced[0].at_s, due_s))
        self._queue.append(self._paced.popleft())
        return True

    def _project_next(self, lane: deque[Frame | CloseSocket], fence: Fence, now: float) -> None:
        waiting = self._queue.popleft()
        self._queued_bytes -= waiting.n_bytes
        self._sending_bytes = waiting.n_bytes
        if isinstance(waiting.content, CloseSocket):
            lane.append(waiting.content)
            return
        had_overflow = self.journal.is_overflowed
        lane.extend(self._numbered(waiting.content, waiting.at_s, fence, now))
        if self.journal.is_overflowed and not had_overflow:
            lane.extend(self._plain(ResyncRequired(fence, "journal_overflow"), waiting.at_s))

    def _write_down(self, waiting: _Waiting, fence: Fence, now: float) -> None:
        """Keep what nobody is there to read."""
        if not isinstance(waiting.content, CloseSocket):
            self._numbered(waiting.content, waiting.at_s, fence, now)

    def _numbered(self, event: Event, at_s: float, fence: Fence, now: float) -> list[Frame]:
        if _is_stale(event, fence):
            return []
        return self._frames(event, at_s, keeps=self._keeps_journal, now=now)

    def _plain(self, event: Event, at_s: float) -> list[Frame]:
        return self._frames(event, at_s, keeps=False, now=at_s)

    def _frames(self, event: Event, at_s: float, *, keeps: bool, now: float) -> list[Frame]:
        sent = self._projector.project(event)
        speech = event if isinstance(event, SpeechDelta) else None
        is_refusal = isinstance(event, ErrorRaised) and isinstance(event.error, ClientError)
        last = len(sent) - 1
        frames = []
        for index, wire_event in enumerate(sent):
            is_kept = keeps and wire_event.is_journaled and not self.journal.is_overflowed
            seq = self.journal.newest_seq + 1 if is_kept else None
            text = wire_event.to_text(self._ids.new("event"), seq)
            if is_kept:
                self.journal.record(text, now=now)
            frames.append(Frame(text, at_s, speech if index == last else None, is_refusal))
        return frames


def _is_stale(event: Event, current: Fence) -> bool:
    """Whether `event` is output of an epoch that was over before it could be sent."""
    fence = output_fence(event)
    return fence is not None and current.judge(fence) is FenceVerdict.STALE


def _weight(content: Event | CloseSocket) -> int:
    match content:
        case SpeechDelta():
            # base64 of the audio; other formats than 24 kHz PCM16 are of the same order.
            return EVENT_BYTES + len(content.pcm) * 4 // 3
        case _:
            return EVENT_BYTES
