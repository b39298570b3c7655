"""The simulated speaker, on a clock that the test holds in its hand."""

import pytest

from clients.events import AudioDelta, OutputAudioCleared, ResponseDone
from clients.playback import PlaybackAck, PlaybackClock


def delta(response_id: str, milliseconds: int, at_s: float) -> AudioDelta:
    return AudioDelta(
        type="response.audio.delta",
        response_id=response_id,
        audio=bytes(milliseconds * 48),
        encoding="pcm16",
        rate_hz=24_000,
        duration_ms=float(milliseconds),
        received_s=at_s,
    )


def done(response_id: str, status: str, at_s: float) -> ResponseDone:
    return ResponseDone(
        type="response.done", response_id=response_id, status=status, received_s=at_s
    )


def test_it_starts_with_the_first_chunk_and_plays_without_gaps() -> None:
    speaker = PlaybackClock()
    assert speaker.is_idle(10.0)
    assert speaker.observe(delta("A", 400, 10.0)) == 10.0
    assert speaker.observe(delta("A", 600, 10.1)) == pytest.approx(10.4)
    assert [speaker.played_ms("A", at) for at in (9.0, 10.0, 10.25, 10.7, 11.0, 60.0)] == [
        *(0, 0, 250, 700, 1000, 1000)
    ]
    assert speaker.stall_ms == []
    assert not speaker.is_idle(10.999)
    assert speaker.is_idle(11.0)


def test_a_late_chunk_is_a_stall_and_is_not_counted_as_played() -> None:
    speaker = PlaybackClock()
    speaker.observe(delta("A", 200, 1.0))
    assert speaker.observe(delta("A", 200, 1.5)) == 1.5
    assert speaker.stall_ms == [pytest.approx(300)]
    assert [speaker.played_ms("A", at) for at in (1.2, 1.4, 1.6, 2.0)] == [200, 200, 300, 400]


def test_there_is_one_speaker() -> None:
    speaker = PlaybackClock()
    speaker.observe(delta("A", 1000, 1.0))
    assert speaker.observe(delta("B", 500, 1.2)) == 2.0
    assert [speaker.played_ms("B", at) for at in (1.9, 2.25, 3.0)] == [0, 250, 500]
    assert speaker.stall_ms == []


@pytest.mark.parametrize("kind", ["cancelled", "lost", "cleared"])
def test_a_flush_stops_where_it_is_and_late_audio_is_not_played(kind: str) -> None:
    speaker = PlaybackClock()
    speaker.observe(delta("A", 3000, 1.0))
    if kind != "cleared":
        speaker.observe(done("A", kind, 1.75))
    else:
        speaker.observe(
            OutputAudioCleared(type="output_audio_buffer.cleared", response_id="A", received_s=1.75)
        )
    assert speaker.is_idle(1.75)
    assert speaker.due_acks(1.75) == [PlaybackAck("A", 750)]
    assert speaker.observe(delta("A", 100, 1.8)) is None
    assert speaker.played_ms("A", 9.0) == 750
    assert speaker.due_acks(9.0) == []
    assert speaker.observe(delta("B", 100, 2.0)) == 2.0


def test_a_flush_leaves_other_responses_alone() -> None:
    speaker = PlaybackClock()
    speaker.observe(delta("A", 1000, 1.0))
    speaker.observe(delta("B", 1000, 1.0))
    speaker.observe(done("B", "cancelled", 1.5))
    assert speaker.played_ms("B", 9.0) == 0
    assert speaker.played_ms("A", 9.0) == 1000
    assert speaker.observe(delta("C", 100, 1.6)) == 2.0


def test_nothing_of_a_response_is_played_that_was_flushed_before_it_came() -> None:
    speaker = PlaybackClock()
    speaker.observe(done("A", "cancelled", 1.0))
    assert speaker.observe(delta("A", 100, 1.1)) is None
    assert speaker.due_acks(2.0) == []


def test_acknowledgements_come_in_their_own_rhythm_and_at_the_end() -> None:
    speaker = PlaybackClock(ack_every_s=0.5)
    speaker.observe(delta("A", 1200, 10.0))
    acks = []
    for tick in range(10, 20):
        now = 9.0 + tick / 10 + 0.0
        acks += speaker.due_acks(now)
        if tick == 12:
            speaker.observe(done("A", "completed", now))
    for tick in range(20, 26):
        acks += speaker.due_acks(9.0 + tick / 10)
    assert acks == [PlaybackAck("A", 500), PlaybackAck("A", 1000), PlaybackAck("A", 1200)]


def test_an_answer_that_is_not_done_may_go_on() -> None:
    speaker = PlaybackClock(ack_every_s=0.5)
    speaker.observe(delta("A", 100, 1.0))
    assert speaker.due_acks(1.6) == [PlaybackAck("A", 100)]
    speaker.observe(delta("A", 100, 2.0))
    assert speaker.due_acks(2.6) == [PlaybackAck("A", 200)]
    speaker.observe(done("A", "completed", 2.7))
    assert speaker.due_acks(3.0) == []
    assert speaker.played_ms("A", 3.0) == 200


def test_no_more_than_what_came_is_ever_reported() -> None:
    speaker = PlaybackClock(ack_every_s=0.0)
    reported: list[int] = []
    for n in range(300):
        now = n * 0.0213
        speaker.observe(delta("A", 20, now))
        reported += [ack.played_ms for ack in speaker.due_acks(now)]
        assert not reported or reported[-1] <= 20 * (n + 1)
    assert reported == sorted(set(reported))
