"""Blocks of a recording, on a clock that only sleeping moves."""

from dataclasses import dataclass, field

import pytest

from clients.levels import SpeechSpan
from clients.source import Block, RecordingSource
from clients.wav import Recording


@dataclass
class HandTime:
    """A clock that goes on by what is slept, and by `late_s` more each time."""

    now_s: float = 100.0
    late_s: float = 0.0
    slept_s: list[float] = field(default_factory=list)

    def clock(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now_s += seconds + self.late_s


def numbered(samples: int, rate_hz: int = 1000) -> Recording:
    pcm = b"".join((n % 60_000 + 1).to_bytes(2, "little") for n in range(samples))
    return Recording(pcm, rate_hz)


def source(
    recording: Recording, time: HandTime, *spans: SpeechSpan, repeats: bool = False
) -> RecordingSource:
    return RecordingSource(recording, spans, repeats=repeats, clock=time.clock, sleep=time.sleep)


async def read(source: RecordingSource, blocks: int) -> list[Block]:
    return [await source.read() for _ in range(blocks)]


async def test_a_recording_is_followed_by_silence() -> None:
    recording, time = numbered(500), HandTime()
    reader = source(recording, time)
    states = []
    blocks = []
    for _ in range(4):
        states.append(reader.is_over)
        blocks.append(await reader.read())
    assert b"".join(block.pcm for block in blocks) == recording.pcm + bytes(600)
    assert [block.due_s for block in blocks] == pytest.approx([100.2, 100.4, 100.6, 100.8])
    assert states == [False, False, False, True]


async def test_a_late_block_does_not_make_the_next_ones_late() -> None:
    time = HandTime(late_s=0.05)
    blocks = await read(source(numbered(2000), time), 4)
    assert [block.due_s for block in blocks] == pytest.approx([100.2, 100.4, 100.6, 100.8])
    assert time.slept_s == pytest.approx([0.2, 0.15, 0.15, 0.15])


async def test_a_source_far_behind_does_not_sleep() -> None:
    time = HandTime()
    reader = source(numbered(2000), time)
    await reader.read()
    time.now_s += 5.0
    await read(reader, 3)
    assert time.slept_s == pytest.approx([0.2, 0.0, 0.0, 0.0])


async def test_a_repeated_recording_never_ends_and_loses_nothing() -> None:
    recording, time = numbered(300), HandTime()
    reader = source(recording, time, repeats=True)
    blocks = await read(reader, 6)
    assert b"".join(block.pcm for block in blocks) == recording.pcm * 4
    assert not reader.is_over


async def test_a_recording_shorter_than_a_block_is_repeated_within_it() -> None:
    recording, time = numbered(30), HandTime()
    blocks = await read(source(recording, time, repeats=True), 3)
    assert b"".join(block.pcm for block in blocks) == recording.pcm * 20


@pytest.mark.parametrize("rate_hz", [8000, 11_025, 16_000, 22_050, 44_100, 48_000])
async def test_any_rate_is_cut_without_drift(rate_hz: int) -> None:
    recording, time = numbered(rate_hz * 2, rate_hz), HandTime()
    blocks = await read(source(recording, time), 10)
    assert b"".join(block.pcm for block in blocks) == recording.pcm


async def test_the_end_of_speech_is_told_with_the_block_that_holds_it() -> None:
    time = HandTime()
    spans = (SpeechSpan(0, 150), SpeechSpan(300, 400))
    blocks = await read(source(numbered(1000), time, *spans), 4)
    assert [block.speech_ends_s for block in blocks] == [
        (pytest.approx(100.15),),
        (pytest.approx(100.4),),
        (),
        (),
    ]


async def test_repeated_speech_ends_in_every_round() -> None:
    time = HandTime()
    reader = source(numbered(300), time, SpeechSpan(0, 100), repeats=True)
    ends = [end for block in await read(reader, 6) for end in block.speech_ends_s]
    assert ends == pytest.approx([100.1, 100.4, 100.7, 101.0])
