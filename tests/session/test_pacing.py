"""Speech at the pace at which it is played, and everything else at once."""

from dataclasses import dataclass, replace

import pytest

from session.config import AudioEncoding, AudioFormat, SessionLimits
from session.effects import CloseSocket, DetachSocket, Emit, Output
from session.errors import IllegalNow
from session.events import (
    ErrorRaised,
    Event,
    ResponseFinished,
    SpeechDelta,
)
from session.fence import Fence
from session.ids import ItemId, ResponseId, SessionId
from session.item_events import (
    ItemView,
    TextMark,
)
from session.outbox import Frame, Outbox
from session.pacing import LEAD_S, Pace, frames
from session.snapshot import Playback
from session.socket_stimuli import FIRST_ATTACHMENT
from tests.session.driver import CountingIds

FENCE = Fence(SessionId("s1"), 0, 0, 0)
TEXT = "One two three, four five six."
CHUNK = SpeechDelta(
    fence=FENCE,
    response_id=ResponseId("r"),
    item_id=ItemId("i"),
    pcm=bytes(48_000),
    transcript=TEXT,
    audio_ms=1_500,
    marks=(TextMark(29, 1_500),),
    playback=Playback(),
    output_format=AudioFormat(AudioEncoding.PCM16, 24_000),
    is_turn_end=True,
)
FINISHED = ResponseFinished(
    fence=FENCE,
    current=FENCE,
    response_id=ResponseId("r"),
    item=ItemView(ItemId("i"), "assistant", "completed", TEXT, is_audio=True),
    previous_item_id=None,
    status="completed",
    reason="stop",
    playback=Playback(),
    is_committed=True,
    output_modalities=("audio",),
)
CANCELLED = replace(FINISHED, status="cancelled", reason="turn_detected")
ERROR = ErrorRaised(IllegalNow("not now"))
CLOSE = CloseSocket(1000, "client_close")


@dataclass(frozen=True)
class Echo:
    """A wire event that is the kernel's own."""

    event: Event
    written: dict[str, Event]
    is_journaled: bool = False

    def to_text(self, event_id: str, server_event_seq: int | None = None) -> str:
        del server_event_seq
        self.written[event_id] = self.event
        return event_id


class Echoes:
    """A dialect whose events are found again by the text of their frames."""

    def __init__(self) -> None:
        self.written: dict[str, Event] = {}

    def project(self, event: Event) -> list[Echo]:
        return [Echo(event, self.written)]

    def heard(self, item: Frame | CloseSocket) -> Event | CloseSocket:
        return item if isinstance(item, CloseSocket) else self.written[item.text]


class Line:
    """An outbox that paces, and a reader who always reads."""

    def __init__(self, pace: Pace | None) -> None:
        self._echo = Echoes()
        self.now = 100.0
        self.fence = FENCE
        self.outbox = Outbox(
            self._echo,
            ids=CountingIds(),
            limits=SessionLimits(),
            attachment=FIRST_ATTACHMENT,
            keeps_journal=False,
            pace=pace,
        )

    def put(self, *contents: Event | CloseSocket | DetachSocket) -> None:
        for content in contents:
            match content:
                case CloseSocket() | DetachSocket():
                    effect: Output = content
                case _:
                    effect = Emit(content)
            self.outbox.perform(effect, fence=self.fence, at_s=self.now, now=self.now)

    def read(self) -> list[Event | CloseSocket]:
        """Take all that may be sent now."""
        taken = []
        while (item := self._next()) is not None:
            taken.append(self._echo.heard(item))
        return taken

    def heard_ms(self) -> int:
        """Take all that may be sent now; return how much speech is in it."""
        said = [event for event in self.read() if isinstance(event, SpeechDelta)]
        return sum(len(event.pcm) // 48 for event in said)

    def _next(self) -> Frame | CloseSocket | None:
        return self.outbox.next(FIRST_ATTACHMENT, fence=self.fence, now=self.now)


def paced() -> Line:
    return Line(Pace())


def test_without_a_pace_all_is_sent_at_once() -> None:
    line = Line(None)
    line.put(CHUNK, FINISHED)
    assert line.read() == [CHUNK, FINISHED]
    assert line.outbox.due_at_s is None


def test_a_client_never_has_more_than_the_lead_to_play() -> None:
    line = paced()
    line.put(CHUNK, replace(CHUNK, audio_ms=2_500))
    sent_ms, played_ms = line.heard_ms(), 0
    assert sent_ms == LEAD_S * 1_000
    while sent_ms < 2_000:
        line.now += 0.1
        played_ms += 100
        sent_ms += line.heard_ms()
        assert played_ms < sent_ms <= played_ms + LEAD_S * 1_000
    assert line.read() == []


def test_it_is_known_when_the_next_piece_may_go() -> None:
    line = paced()
    line.put(CHUNK)
    line.read()
    assert line.outbox.due_at_s == pytest.approx(line.now + 0.2)
    line.now += 0.19
    assert line.read() == []
    line.now += 0.02
    assert len(line.read()) == 1


def test_after_a_pause_it_goes_on_at_once() -> None:
    line = paced()
    line.put(replace(CHUNK, pcm=bytes(9_600)))
    line.read()
    line.now += 60
    line.put(CHUNK)
    assert line.heard_ms() == LEAD_S * 1_000


def test_what_is_no_speech_goes_past() -> None:
    line = paced()
    line.put(CHUNK, FINISHED, ERROR)
    said = line.read()
    assert ERROR in said
    assert FINISHED not in said
    for _ in range(8):
        line.now += 0.1
        said += line.read()
    assert said[-1] == FINISHED


def test_a_close_does_not_wait_for_what_is_held_back() -> None:
    line = paced()
    line.put(CHUNK)
    assert line.heard_ms() == LEAD_S * 1_000
    line.put(ERROR, FINISHED, CLOSE)
    assert line.read() == [ERROR, FINISHED, CLOSE]


def test_an_interruption_drops_what_has_not_been_sent() -> None:
    line = paced()
    line.put(CHUNK)
    assert line.heard_ms() == LEAD_S * 1_000
    line.fence = line.fence.next_epoch()
    line.put(CANCELLED, CLOSE)
    assert line.read() == [CANCELLED, CLOSE]
    assert line.outbox.due_at_s is None


def test_the_next_answer_follows_what_the_client_still_plays() -> None:
    line = paced()
    line.put(CHUNK)
    line.read()
    line.fence = line.fence.next_epoch()
    line.put(CANCELLED, replace(CHUNK, fence=line.fence))
    assert line.read() == [CANCELLED]
    line.now += 0.2
    assert line.heard_ms() == 200


def test_speech_that_waits_for_its_time_is_no_sign_of_a_slow_reader() -> None:
    line = paced()
    for number in range(100):
        line.put(replace(CHUNK, audio_ms=1_000 * (number + 1)))
    assert not line.outbox.is_over_bound


def test_a_client_that_is_let_go_is_sent_nothing_more() -> None:
    line = paced()
    line.put(CHUNK, DetachSocket(FIRST_ATTACHMENT))
    assert line.read() == []
    assert line.outbox.due_at_s is None


def test_time_that_speech_waits_is_not_counted_as_our_own() -> None:
    line = paced()
    line.put(CHUNK)
    line.read()
    began_s = line.now
    line.now += 0.2
    item = line.outbox.next(FIRST_ATTACHMENT, fence=Fence(FENCE.session_id, 0, 0, 0), now=line.now)
    assert isinstance(item, Frame)
    assert item.at_s == pytest.approx(began_s + 0.2)


# --- frames -------------------------------------------------------------------------------------


def test_frames_are_the_chunk_in_pieces() -> None:
    cut = list(frames(CHUNK))
    assert [len(frame.pcm) // 48 for frame in cut] == [200] * 5
    assert [frame.audio_ms for frame in cut] == [700, 900, 1_100, 1_300, 1_500]
    assert b"".join(frame.pcm for frame in cut) == CHUNK.pcm
    assert [frame.transcript for frame in cut] == ["One two ", "three, ", "four ", "five ", "six."]
    assert [frame.is_turn_end for frame in cut] == [False] * 4 + [True]
    assert [bool(frame.marks) for frame in cut] == [False] * 4 + [True]


def test_a_rest_is_a_shorter_frame() -> None:
    cut = list(frames(replace(CHUNK, pcm=bytes(10_000), audio_ms=208)))
    assert [len(frame.pcm) for frame in cut] == [9_600, 400]
    assert [frame.audio_ms for frame in cut] == [200, 208]


@pytest.mark.parametrize("text", ["", "word", "two words", "  ", "a b c d e f g h i j k", "x" * 99])
def test_words_are_neither_lost_nor_doubled_nor_cut(text: str) -> None:
    cut = [frame.transcript for frame in frames(replace(CHUNK, transcript=text))]
    assert "".join(cut) == text
    assert sorted(word for piece in cut for word in piece.split()) == sorted(text.split())


@pytest.mark.parametrize("pcm", [b"", bytes(2), bytes(9_600)])
def test_what_fits_into_a_frame_stays_whole(pcm: bytes) -> None:
    short = replace(CHUNK, pcm=pcm)
    assert list(frames(short)) == [short]
