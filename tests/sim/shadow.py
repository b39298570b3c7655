"""The unbroken observer: sees everything that one session's outbox writes, as it is written.

What a client reads over all its sockets is compared with this record, and the laws that hold on
the wire are checked on it: each answer's order of events, pairs, sums, the one end.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from session.config import SessionLimits
from session.events import Event, output_fence
from session.fence import Fence, FenceVerdict
from session.ledger.journal import Replay
from session.outbox import Projector, WireEvent
from session.socket_events import ResyncRequired, SessionReplaced, SessionResumed
from tests.sim.violation import Violation

FREE_TYPES = frozenset({"session.resumed", "session.replaced", "session.resync_required"})
"""Frames for one socket, which are no part of the session's output."""
AFTER_THE_END = frozenset({"output_audio_buffer.cleared", "response.done", "rate_limits.updated"})
ONCE = frozenset(
    {
        "response.created",
        "response.speak",
        "response.audio.done",
        "response.audio_transcript.done",
        "response.text.done",
        "response.content_part.done",
        "response.done",
    }
)
DELTAS = {
    "response.audio_transcript.delta": "response.audio_transcript.done",
    "response.text.delta": "response.text.done",
}


@dataclass(frozen=True, slots=True)
class Written:
    """One frame, its number if it has one, and when it was written."""

    seq: int | None
    event_id: str
    type: str
    text: str
    at_s: float


@dataclass(frozen=True, slots=True)
class _Watched:
    """A wire event that tells the shadow when it becomes text."""

    event: Any
    shadow: "Shadow"

    @property
    def is_journaled(self) -> bool:
        return bool(self.event.is_journaled)

    def to_text(self, event_id: str, server_event_seq: int | None = None) -> str:
        text: str = self.event.to_text(event_id, server_event_seq)
        self.shadow.write(self.event, event_id, server_event_seq, text)
        return text


class Shadow:
    """A projector between an outbox and its dialect, which remembers and checks."""

    def __init__(
        self,
        projector: Projector,
        *,
        limits: SessionLimits,
        fence: Callable[[], Fence],
        now: Callable[[], float],
    ) -> None:
        self._projector = projector
        self._fence = fence
        self._now = now
        self._ttl_s = limits.resume_replay_ttl_s
        self._max_bytes = limits.resume_replay_max_bytes_per_session
        self.emitted: deque[Event] = deque()
        """What the kernel said and the outbox has not taken up yet."""
        self.frames: list[Written] = []
        """The session's output, without what is for one socket only."""
        self.numbered: list[Written] = []
        self.n_stale = 0
        self.has_overflowed = False
        self._acked = 0
        self._kept: deque[tuple[int, int, float]] = deque()
        self._answers: dict[str, _Answer] = {}
        self._event_ids: set[str] = set()
        self._speech: str | None = None
        self._awaits: str | None = None
        """The audio delta whose transcript delta must come next."""
        self._epoch = 0
        self._items: dict[str, bool] = {}
        """Items of the conversation, and whether each is done."""
        self._told_once: set[tuple[str, str]] = set()
        self._last = ""
        self.terminals = 0

    # --- as the outbox sees it ------------------------------------------------------------------

    def project(self, event: Event) -> Sequence[WireEvent]:
        """Check that the event is the next one that may be sent, and pass it on."""
        if not isinstance(event, SessionResumed | SessionReplaced | ResyncRequired):
            self._take(event)
        fence = output_fence(event)
        if fence is not None and self._fence().judge(fence) is FenceVerdict.STALE:
            raise Violation(f"law 13: output of epoch {fence.epoch} is sent: {event}")
        return [_Watched(wire_event, self) for wire_event in self._projector.project(event)]

    def _take(self, event: Event) -> None:
        while self.emitted:
            first = self.emitted.popleft()
            if first is event:
                return
            fence = output_fence(first)
            if fence is None or self._fence().judge(fence) is not FenceVerdict.STALE:
                raise Violation(f"law 6: {type(first).__name__} is lost on its way out")
            self.n_stale += 1
        raise Violation(f"{type(event).__name__} is sent twice, or was never said")

    def write(self, event: Any, event_id: str, seq: int | None, text: str) -> None:
        """Remember a frame and check what holds on the wire."""
        if event_id in self._event_ids:
            raise Violation(f"law 11: {event_id} is used twice")
        self._event_ids.add(event_id)
        if event.type in FREE_TYPES:
            return
        written = Written(seq, event_id, event.type, text, self._now())
        self.frames.append(written)
        if seq is not None:
            self._number(written, seq)
        self._check(event)

    def _number(self, written: Written, seq: int) -> None:
        if seq != len(self.numbered) + 1:
            raise Violation(f"law 11: event {seq} follows event {len(self.numbered)}")
        if self.has_overflowed:
            raise Violation("law 11: numbers go on although the journal is lost")
        self.numbered.append(written)
        self._kept.append((seq, len(written.text.encode()), written.at_s))
        self._forget(written.at_s)
        if sum(size for _, size, _ in self._kept) > self._max_bytes:
            self.has_overflowed = True

    # --- what can be replayed -------------------------------------------------------------------

    def acknowledge(self, seq: int) -> None:
        """The client says that it needs nothing up to `seq`."""
        self._acked = max(self._acked, seq)

    def _forget(self, now: float) -> None:
        while self._kept and (
            self._kept[0][0] <= self._acked or self._kept[0][2] < now - self._ttl_s
        ):
            self._kept.popleft()

    def expected(self, after_seq: int, now: float) -> Replay:
        """Say what a client that claims to have read `after_seq` is to be told."""
        self._forget(now)
        if self.has_overflowed:
            return Replay.JOURNAL_OVERFLOW
        if after_seq > len(self.numbered):
            return Replay.CONFLICT
        oldest = self._kept[0][0] if self._kept else len(self.numbered) + 1
        return Replay.JOURNAL_GAP if after_seq + 1 < oldest else Replay.POSSIBLE

    # --- the laws of the wire -------------------------------------------------------------------

    def _check(self, event: Any) -> None:
        kind: str = event.type
        if self.terminals:
            raise Violation(f"law 10: {kind} after the session's end")
        if (self._awaits is not None) != (kind == "response.audio_transcript.delta") and (
            self._awaits is not None or self._is_paired(event)
        ):
            raise Violation("law 4: an audio delta without its transcript delta")
        self._awaits = event.response_id if kind == "response.audio.delta" else None
        if (self._last == "response.done") != (kind == "rate_limits.updated"):
            raise Violation(f"{kind} after {self._last}")
        self._last = kind
        if kind in ("session.closed", "session.expired"):
            self._end()
        elif kind.startswith("input_audio_buffer.speech_"):
            self._speech_edge(kind, event.item_id)
        elif kind.startswith("conversation.item."):
            self._item_event(kind, event)
        elif kind == "input_audio_buffer.committed":
            self._once(kind, event.item_id)
        elif kind == "playback.acknowledged":
            self._playback_event(event.event)
        elif kind.startswith("response.") and getattr(event, "response_id", None) is not None:
            self._answer_event(kind, event)

    def _is_paired(self, event: Any) -> bool:
        """Whether this transcript delta needs an audio delta before it: one alone says so."""
        return event.type == "response.audio_transcript.delta" and event.metadata is None

    def _end(self) -> None:
        self.terminals += 1
        if any(not answer.is_done for answer in self._answers.values()):
            raise Violation("law 3: the session ends before its answer does")
        if self._speech is not None:
            raise Violation("speech_started without speech_stopped")

    def _item_event(self, kind: str, event: Any) -> None:
        match kind.rpartition(".")[2]:
            case "added":
                if event.item.id in self._items:
                    raise Violation(f"item {event.item.id} is added twice")
                self._items[event.item.id] = False
                if event.previous_item_id not in {None, *self._items} - {event.item.id}:
                    raise Violation(f"item {event.item.id} follows an item that is not there")
            case "done":
                if self._items.get(event.item.id, True):
                    raise Violation(f"item {event.item.id} is done twice, or was never added")
                self._items[event.item.id] = True
            case "deleted":
                self._items.pop(event.item_id, None)
            case "completed":
                self._once(kind, event.item_id)
            case _:
                pass

    def _once(self, kind: str, item_id: str) -> None:
        if (kind, item_id) in self._told_once:
            raise Violation(f"{kind} twice for {item_id}")
        self._told_once.add((kind, item_id))

    def _playback_event(self, fact: Any) -> None:
        answer = self._answers.get(fact.response_id)
        if answer is None:
            raise Violation(f"playback of {fact.response_id}, which was never created")
        answer.advance(fact.playback)

    def _speech_edge(self, kind: str, item_id: str) -> None:
        if kind.endswith("started"):
            if self._speech is not None:
                raise Violation("speech_started twice")
            self._speech = item_id
        else:
            if self._speech != item_id:
                raise Violation(f"speech_stopped of {item_id}, but {self._speech} had started")
            self._speech = None

    def _answer_event(self, kind: str, event: Any) -> None:
        answer = self._answers.get(event.response_id)
        if kind == "response.created":
            if answer is not None or any(not other.is_done for other in self._answers.values()):
                raise Violation(f"law 3: {event.response_id} is created twice, or too early")
            answer = self._answers[event.response_id] = _Answer()
        if answer is None:
            raise Violation(f"law 3: {kind} before response.created")
        answer.see(kind, event)
        metadata = getattr(event, "metadata", None)
        epoch = getattr(metadata, "epoch", None)
        if epoch is not None and kind.endswith("delta"):
            if epoch < self._epoch:
                raise Violation(f"law 13: a delta of epoch {epoch} after one of {self._epoch}")
            self._epoch = epoch


class _Answer:
    """One answer as the wire tells it."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.said = ""
        self.is_done = False
        self.cursors = (0, 0, 0, 0)

    def see(self, kind: str, event: Any) -> None:
        """Check one event of the answer."""
        if self.is_done:
            raise Violation(f"law 3: {kind} after response.done")
        if kind in ONCE and kind in self.seen:
            raise Violation(f"{kind} comes twice")
        is_output = kind.endswith("delta") and "arguments" not in kind
        if is_output and "response.speak" not in self.seen:
            raise Violation(f"law 12: {kind} before response.speak")
        self.seen.add(kind)
        if getattr(getattr(event, "metadata", None), "playback", None) is not None:
            self.advance(event.metadata.playback)
        if kind in DELTAS:
            self.said += event.delta
        elif kind in DELTAS.values():
            told = event.text if kind == "response.text.done" else event.transcript
            if told != self.said:
                raise Violation(f"law 4: {told!r} is not {self.said!r}")
        elif kind == "response.done":
            self.is_done = True
            self.advance(event.response.metadata.playback)

    def advance(self, playback: Any) -> None:
        """Law 5: the cursors are in order, and none of them falls."""
        steps = (
            playback.committed_ms,
            playback.played_ms,
            playback.sent_ms,
            playback.generated_ms,
        )
        if list(steps) != sorted(steps):
            raise Violation(f"law 5: {steps}")
        if any(now < before for now, before in zip(steps, self.cursors, strict=True)):
            raise Violation(f"law 5: {steps} after {self.cursors}")
        self.cursors = steps
