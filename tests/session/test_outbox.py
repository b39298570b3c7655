"""What leaves a session: once, in order, and not at all when it is stale."""

from dataclasses import dataclass
from itertools import count

import pytest

from session.config import AudioEncoding, AudioFormat, SessionLimits
from session.effects import AttachSocket, CloseSocket, DetachSocket, Emit, Output, TrimJournal
from session.events import (
    Event,
    HeartbeatAnswered,
    OutputBufferCleared,
    SessionCreated,
    SpeechDelta,
)
from session.fence import Fence
from session.ids import AttachmentId, ItemId, ResponseId, SessionId
from session.outbox import EVENT_BYTES, REPLACED, Frame, Outbox
from session.snapshot import Playback, SessionSnapshot
from session.socket_events import ResyncRequired, SessionReplaced, SessionResumed
from tests.session.driver import AUTO, CountingIds

OLD = Fence(SessionId("s1"), 0, 0, 0)
NEW = OLD.next_epoch()
A, B = AttachmentId("a"), AttachmentId("b")
SNAPSHOT = SessionSnapshot(OLD, "open", "idle", AUTO, Playback())
BYE = CloseSocket(1000, "bye")


@dataclass(frozen=True)
class Word:
    """A wire event that is one word."""

    text: str
    is_journaled: bool = True

    def to_text(self, event_id: str, server_event_seq: int | None = None) -> str:
        del event_id
        return self.text if server_event_seq is None else f"{server_event_seq}:{self.text}"


class Words:
    """A dialect in which a delta is as many words as its transcript has."""

    def project(self, event: Event) -> list[Word]:
        match event:
            case SpeechDelta(transcript=transcript):
                return [Word(word) for word in transcript.split()]
            case OutputBufferCleared(response_id=response_id):
                return [Word(response_id)]
            case SessionCreated() | SessionResumed() | SessionReplaced() | ResyncRequired():
                return [Word(type(event).__name__, is_journaled=False)]
            case _:
                return [Word("beat")]


def delta(text: str, fence: Fence = OLD, pcm: bytes = b"") -> SpeechDelta:
    return SpeechDelta(
        fence=fence,
        response_id=ResponseId("r"),
        item_id=ItemId("i"),
        pcm=pcm,
        transcript=text,
        audio_ms=0,
        marks=(),
        playback=Playback(),
        output_format=AudioFormat(AudioEncoding.PCM16, 24_000),
    )


def cleared(name: str) -> OutputBufferCleared:
    return OutputBufferCleared(ResponseId(name))


class Way:
    """An outbox, and words to use it with."""

    def __init__(self, *, keeps_journal: bool = True, **limits: float) -> None:
        self.fence, self.now = OLD, 0.0
        self.outbox = Outbox(
            Words(),
            ids=CountingIds(),
            limits=SessionLimits(**limits),  # type: ignore[arg-type]  # a test's own
            attachment=A,
            keeps_journal=keeps_journal,
        )

    def do(self, *effects: Output) -> None:
        for effect in effects:
            self.outbox.perform(effect, fence=self.fence, at_s=self.now, now=self.now)

    def say(self, *words: str) -> None:
        self.do(*(Emit(cleared(word)) for word in words))

    def hear(self, attachment: AttachmentId = A, at_most: int = 99) -> list[str]:
        heard: list[str] = []
        for _ in range(at_most):
            item = self.outbox.next(attachment, fence=self.fence, now=self.now)
            if item is None:
                break
            heard.append(item.text if isinstance(item, Frame) else item.reason)
        return heard

    def resume(self, attachment: AttachmentId, after: int, *, replaces: bool = False) -> None:
        old = SessionReplaced(self.fence, 1) if replaces else None
        resumed = SessionResumed(SNAPSHOT, 2, "token")
        self.do(AttachSocket(attachment, resumed, after, old))


# --- in order -------------------------------------------------------------------------------------


def test_what_is_sent_is_numbered_but_for_what_concerns_the_socket() -> None:
    way = Way()
    way.do(Emit(SessionCreated(SNAPSHOT)))
    way.say("x", "y")
    way.do(BYE)
    assert way.hear() == ["SessionCreated", "1:x", "2:y", "bye"]


def test_without_a_journal_nothing_is_numbered() -> None:
    way = Way(keeps_journal=False)
    way.say("x")
    assert way.hear() == ["x"]
    assert len(way.outbox.journal) == 0


def test_the_last_frame_of_a_chunk_ends_it() -> None:
    way = Way()
    way.do(Emit(delta("one two")))
    way.say("x")
    frames = [way.outbox.next(A, fence=OLD, now=0.0) for _ in range(3)]
    speech = [frame.speech for frame in frames if isinstance(frame, Frame)]
    assert speech == [None, delta("one two"), None]


# --- stale ----------------------------------------------------------------------------------------


def test_output_that_became_stale_in_the_queue_is_not_sent_and_not_kept() -> None:
    way = Way()
    way.do(Emit(delta("one")), Emit(delta("two")))
    assert way.hear(at_most=1) == ["1:one"]
    way.fence = NEW
    way.say("end")
    assert way.hear() == ["2:end"]
    way.resume(B, 0)
    assert way.hear(B) == ["SessionResumed", "1:one", "2:end"]


def test_output_that_is_stale_while_nobody_is_there_is_not_kept() -> None:
    way = Way()
    way.do(Emit(delta("queued")), Emit(cleared("end")))
    way.fence = NEW
    way.do(DetachSocket(A), Emit(delta("late")), Emit(delta("new", NEW)))
    way.resume(B, 0)
    assert way.hear(B) == ["SessionResumed", "1:end", "2:new"]


# --- coming back ----------------------------------------------------------------------------------


def test_what_happened_meanwhile_comes_in_order_and_then_what_is_new() -> None:
    way = Way()
    way.say("x", "y")
    assert way.hear(at_most=1) == ["1:x"]
    way.do(DetachSocket(A))
    way.say("z")
    way.resume(B, 1)
    way.say("w")
    assert way.hear(B) == ["SessionResumed", "2:y", "3:z", "4:w"]
    assert way.hear(A) == []


def test_a_takeover_leaves_the_old_socket_a_farewell_and_nothing_else() -> None:
    way = Way()
    way.say("x", "y", "z")
    assert way.hear(at_most=1) == ["1:x"]
    way.resume(B, 0, replaces=True)
    assert way.hear(A) == ["SessionReplaced", REPLACED.reason]
    assert way.hear(B) == ["SessionResumed", "1:x", "2:y", "3:z"]
    assert way.outbox.has_left(A)
    assert not way.outbox.has_left(B)


def test_an_old_socket_that_is_gone_gets_no_farewell() -> None:
    way = Way()
    way.outbox.leave(A)
    way.resume(B, 0, replaces=True)
    assert way.hear(A) == []
    assert way.hear(B) == ["SessionResumed"]


def test_a_socket_that_is_let_go_is_told_to_close() -> None:
    way = Way()
    way.say("x")
    way.do(DetachSocket(A, BYE))
    assert way.hear(A) == ["bye"]
    way.resume(B, 0)
    assert way.hear(B) == ["SessionResumed", "1:x"]


def test_nothing_is_kept_for_a_socket_that_was_gone_before_it_was_attached() -> None:
    way = Way()
    way.outbox.leave(B)
    way.resume(B, 0, replaces=True)
    way.do(DetachSocket(B))
    assert list(way.outbox._lanes) == [A]  # noqa: SLF001  # nobody else would notice


def test_a_replay_that_breaks_is_replayed_again() -> None:
    way = Way()
    way.say("x", "y")
    way.hear()
    way.do(DetachSocket(A))
    way.resume(B, 0)
    assert way.hear(B, at_most=2) == ["SessionResumed", "1:x"]
    way.outbox.leave(B)
    way.do(DetachSocket(B))
    way.resume(A, 0)
    assert way.hear(A) == ["SessionResumed", "1:x", "2:y"]


def test_the_order_to_close_is_for_whoever_is_attached() -> None:
    way = Way()
    way.do(DetachSocket(A), BYE)
    way.resume(B, 0)
    assert way.hear(B) == ["SessionResumed"]


def test_what_was_acknowledged_does_not_come_again() -> None:
    way = Way()
    way.say("x", "y", "z")
    way.hear()
    way.do(TrimJournal(2), DetachSocket(A))
    assert way.outbox.offer(1, now=0.0).oldest_seq == 3
    way.resume(B, 2)
    assert way.hear(B) == ["SessionResumed", "3:z"]


# --- too much -------------------------------------------------------------------------------------


def test_an_overflow_is_told_once_and_numbers_end() -> None:
    way = Way(resume_replay_max_bytes_per_session=8)
    way.say("aaaa", "bbbb", "cccc")
    assert way.hear() == ["1:aaaa", "2:bbbb", "ResyncRequired", "cccc"]
    way.do(DetachSocket(A))
    way.say("dddd")
    assert len(way.outbox.journal) == 0


@pytest.mark.parametrize("waiting", [0, 1])
def test_a_reader_that_is_behind_by_events(waiting: int) -> None:
    way = Way(max_output_events_per_session=3)
    way.say(*"xyz"[:3])
    assert not way.outbox.is_over_bound
    way.say(*"w" * waiting)
    assert way.outbox.is_over_bound == bool(waiting)


def test_a_reader_that_is_behind_by_bytes_counts_what_is_being_sent() -> None:
    way = Way(max_output_bytes_per_session=2 * EVENT_BYTES + 3_999)
    way.do(Emit(delta("one", pcm=bytes(3_000))), Emit(HeartbeatAnswered(OLD)))
    assert way.outbox.is_over_bound
    assert way.hear(at_most=1) == ["1:one"]
    assert way.outbox.is_over_bound, "asked for the next, and only then has it left"
    assert way.hear(at_most=1) == ["2:beat"]
    assert not way.outbox.is_over_bound


def test_nothing_is_behind_while_nobody_reads() -> None:
    way = Way(max_output_events_per_session=1)
    way.say("x", "y", "z")
    way.do(DetachSocket(A))
    way.say(*(str(number) for number, _ in zip(count(), range(9), strict=False)))
    assert not way.outbox.is_over_bound
