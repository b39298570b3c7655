"""Camera frames go where the audio of their append goes, and none is lost on the way."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session.config import ResponseOptions, SessionLimits, TurnDetection
from session.errors import LocalProtocolError
from session.events import ErrorRaised, OverlapDecided, SessionCreated
from session.ids import AttachmentId, ItemId
from session.ledger.input import InputLedger
from session.ledger.spans import Reservation, Span, Turn
from session.socket_stimuli import FIRST_ATTACHMENT, ResumeRequested, SocketLost
from session.stimuli import (
    AudioAppended,
    BargedIn,
    CloseRequested,
    InputCancelled,
    InputCleared,
    InputCommitted,
    ItemCreated,
    ItemDeleted,
    Received,
    ResponseRequested,
    Stimulus,
)
from tests.session.driver import AUTO, TURN_MODE, UNIT_BYTES, Driver, speaking

CREATE = ResponseRequested(ResponseOptions())
ITEM = ItemId("i")


def seen(n_bytes: int, *frames: bytes, speech: bool | None = True) -> AudioAppended:
    return AudioAppended(bytes(n_bytes), is_speech=speech, video_frames=frames)


def ledger(d: Driver) -> InputLedger:
    return d.session._state.input  # noqa: SLF001  # where frames are is not told to anybody


def test_a_frame_is_in_the_unit_that_its_append_closes() -> None:
    d = Driver(AUTO)
    for second in range(2):
        for part in range(5):
            frames = (f"frame {second}".encode(),) if part == 4 else ()
            d.do(seen(UNIT_BYTES // 5, *frames))
        d.listen()
        assert d.last_unit().unit.video_frames == ((f"frame {second}".encode(),),)


def test_an_append_over_a_boundary_gives_its_group_to_the_unit_that_it_closes() -> None:
    d = Driver(AUTO)
    d.do(seen(UNIT_BYTES - 2))
    d.do(seen(UNIT_BYTES, b"left", b"right"))
    assert d.last_unit().unit.video_frames == ((b"left", b"right"),)
    d.do(seen(2))
    d.listen()
    assert d.last_unit().unit.video_frames == ()


def test_groups_keep_their_order_and_stay_groups() -> None:
    d = Driver(AUTO)
    d.do(seen(UNIT_BYTES // 2, b"1"))
    d.do(seen(UNIT_BYTES // 2, b"2", b"3"))
    assert d.last_unit().unit.video_frames == ((b"1",), (b"2", b"3"))


def test_an_append_that_fills_no_sample_keeps_its_frame_for_what_follows() -> None:
    d = Driver(AUTO)
    d.do(seen(0, b"early"))
    d.do(seen(UNIT_BYTES))
    assert d.last_unit().unit.video_frames == ((b"early",),)


def test_a_roll_back_loses_no_frame() -> None:
    d = Driver(AUTO)
    speaking(d)
    d.do(seen(UNIT_BYTES, b"a"))
    d.do(seen(UNIT_BYTES, b"b"))
    d.do(BargedIn())
    assert d.last_unit().fence == d.session.fence
    assert d.last_unit().unit.video_frames == ((b"a",),)
    d.listen()
    assert d.last_unit().unit.video_frames == ((b"b",),)
    assert ledger(d).accepted_frames == 1


def test_frames_wait_with_overlap_and_come_with_its_promotion() -> None:
    d = Driver(TURN_MODE)
    d.do(ItemCreated("user", "what do you see"))
    d.do(CREATE)
    d.speak("a long answer")
    d.voice("a long ")
    for n in range(2):
        d.do(seen(UNIT_BYTES, b"x%d" % n))
        d.do(InputCommitted())
    d.voice("answer")
    d.voiced()
    assert d.last_unit().unit.video_frames == ((b"x0",), (b"x1",))


def test_frames_in_silence_are_followed_over_an_answer() -> None:
    d = Driver(TURN_MODE)
    d.do(ItemCreated("user", "what do you see"))
    d.do(CREATE)
    d.speak("a long answer")
    d.voice("a long ")
    d.do(seen(UNIT_BYTES, b"x", speech=False))
    d.do(seen(UNIT_BYTES, speech=False))
    assert [event.reason for event in d.said(OverlapDecided)] == [
        "vision_follow",
        "silence_or_noise",
    ]
    assert ledger(d).open_bytes == UNIT_BYTES


def test_frames_count_as_waiting_input() -> None:
    d = Driver(TURN_MODE, limits=SessionLimits(max_pending_input_bytes_per_session=1000))
    assert d.do(seen(400, b"f" * 500)) == []
    effects = d.do(seen(2, b"f" * 100))
    assert [e.error.wire_code for e in d.said(ErrorRaised, effects)] == ["input_backpressure"]
    assert ledger(d).discarded_frames["refused"] == 1
    assert ledger(d).waiting_bytes == 900
    d.do(InputCommitted())
    assert ledger(d).waiting_bytes == 900
    d.do(CREATE)
    assert ledger(d).waiting_bytes == 900
    d.listen(turn_end=True)
    assert ledger(d).waiting_bytes == 0


@pytest.mark.parametrize(
    ("stimulus", "reason"),
    [
        (InputCleared(), "cleared"),
        (InputCancelled(), "cancelled"),
        (InputCommitted(is_speech=False), "declared_silence"),
        (CloseRequested(), "session_closed"),
    ],
)
def test_frames_are_dropped_with_their_audio(stimulus: Stimulus, reason: str) -> None:
    d = Driver(TURN_MODE)
    d.do(seen(500, b"1", b"2"))
    d.do(stimulus)
    assert ledger(d).discarded_frames[reason] == 2
    assert ledger(d).discarded[reason] == 500


def test_frames_of_a_deleted_item_and_of_silence_before_speech_are_dropped() -> None:
    d = Driver(TURN_MODE)
    d.do(seen(500, b"1"))
    d.do(InputCommitted())
    item = d.session._state.history.last_id  # noqa: SLF001
    assert item is not None
    d.do(ItemDeleted(item))
    assert ledger(d).discarded_frames["deleted"] == 1
    d = Driver(replace(TURN_MODE, turn_detection=TurnDetection()))
    d.append(100, probability=0.0)
    d.do(seen(320, b"1", speech=None))
    d.append(1000, probability=0.0)
    assert ledger(d).discarded_frames["silence"] == 1


def test_a_lost_frame_is_noticed() -> None:
    held = InputLedger()
    held.add(Span(b"ab", video_frames=((b"f",),)))
    held._open[0] = Span(b"ab")  # noqa: SLF001  # what a careless cut would leave
    with pytest.raises(LocalProtocolError):
        held.validate()


ACTS: dict[str, Callable[[InputLedger, int], object]] = {
    "commit": lambda held, _: held.commit_open(ITEM, is_wanted=True),
    "defer": lambda held, _: held.defer_open(ITEM),
    "promote": lambda held, _: held.promote_deferred() if held.has_deferred else None,
    "trim": lambda held, size: held.discard_open("silence", keep_bytes=size),
    "clear": lambda held, _: held.discard_open("cleared"),
    "cancel": lambda held, _: held.discard_waiting("cancelled"),
    "back": lambda held, _: held.roll_back(),
}
STEP = st.tuples(
    st.sampled_from(["add", "add", "add", "reserve", "turns", "settle", *ACTS]),
    st.integers(0, 9),
    st.integers(0, 2),
)


def reserved(held: InputLedger, step: str, size: int) -> Reservation | None:
    """Reserve what the step names, if that is there."""
    if step == "turns":
        return held.reserve_turns() if held.has_wanted_turn else None
    return held.reserve_open(size) if 0 < size <= held.open_bytes else None


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(STEP, max_size=40))
def test_whatever_happens_every_frame_is_somewhere(steps: list[tuple[str, int, int]]) -> None:
    held, count, out = InputLedger(), 0, None
    accepted: list[bytes] = []
    for step, size, frames in steps:
        if step == "add":
            group = tuple(b"%d" % (count + n) for n in range(frames))
            count += frames
            held.add(Span(bytes(size), video_frames=(group,) if group else ()))
        elif step in ACTS:
            ACTS[step](held, size)
            out = None if step == "back" else out
        elif step == "settle":
            accepted += [frame for group in out.video_frames for frame in group] if out else []
            held.settle()
            out = None
        elif out is None:
            out = reserved(held, step, size)
        held.validate()
    assert len(accepted) == len(set(accepted)) == held.accepted_frames


def test_audio_and_frames_that_come_back_join_the_turn_of_their_item() -> None:
    held = InputLedger()
    held.add(Span(b"abcd", video_frames=((b"f",),)))
    held.add(Span(b"efgh", video_frames=((b"g",),)))
    held.reserve_open(2)
    held.queue.add(Turn((), "before", ITEM, is_wanted=False))
    held.commit_open(ITEM, is_wanted=True)
    held.roll_back()
    held.validate()
    turn = held.reserve_turns()
    assert (turn.pcm, turn.video_frames) == (b"abcdefgh", ((b"f",), (b"g",)))


def test_a_frame_finds_its_unit_over_a_lost_socket() -> None:
    d = Driver(AUTO, is_resumable=True)
    token = d.said(SessionCreated)[0].resume_token
    assert token is not None
    half = bytes(UNIT_BYTES // 2)
    other = AttachmentId("att_b")
    d.do(Received(FIRST_ATTACHMENT, AudioAppended(half, video_frames=(b"1",))))
    d.do(SocketLost())
    d.do(ResumeRequested(other, token))
    d.do(Received(other, AudioAppended(half, video_frames=(b"2",))))
    assert d.last_unit().unit.video_frames == ((b"1",), (b"2",))
