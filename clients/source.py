"""Where a conversation's audio comes from, in blocks, as fast as a microphone gives them."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from clients.levels import SpeechSpan
from clients.wav import Recording

Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of 16-bit mono audio that is ready to be sent."""

    pcm: bytes
    due_s: float
    """When a microphone would have had it ready, on the client's clock."""
    speech_ends_s: tuple[float, ...] = ()
    """When speech in this block ended, on the client's clock; empty when that is not known."""


class AudioSource(Protocol):
    """A microphone, or something like it."""

    @property
    def rate_hz(self) -> int:
        """Sample rate of every block."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether nothing but silence will follow."""
        ...

    async def read(self) -> Block:
        """Wait until the next block is due and return it."""
        ...


class RecordingSource:
    """Plays a recording in real time, then silence, or the recording again and again.

    Blocks keep an absolute schedule: a late one does not make later ones late.
    """

    def __init__(
        self,
        recording: Recording,
        spans: Sequence[SpeechSpan] = (),
        *,
        chunk_ms: int = 200,
        repeats: bool = False,
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._recording = recording
        self._spans = tuple(spans)
        self._chunk_ms = chunk_ms
        self._repeats = repeats
        self._clock = clock
        self._sleep = sleep
        self._start_s: float | None = None
        self._blocks_read = 0

    @property
    def rate_hz(self) -> int:
        """Sample rate of the recording."""
        return self._recording.rate_hz

    @property
    def is_over(self) -> bool:
        """Whether the whole recording has been read and will not be repeated."""
        return not self._repeats and self._blocks_read * self._chunk_ms >= self._length_ms

    async def read(self) -> Block:
        """Wait until the next block is due and return it."""
        if self._start_s is None:
            self._start_s = self._clock()
        from_ms = self._blocks_read * self._chunk_ms
        to_ms = from_ms + self._chunk_ms
        due_s = self._start_s + to_ms / 1000
        delay_s = due_s - self._clock()
        await self._sleep(max(0.0, delay_s))
        self._blocks_read += 1
        ends_s = tuple(self._start_s + end / 1000 for end in self._ends_ms(from_ms, to_ms))
        return Block(self._cut(from_ms, to_ms), due_s, ends_s)

    @property
    def _length_ms(self) -> float:
        return self._recording.seconds * 1000

    def _cut(self, from_ms: int, to_ms: int) -> bytes:
        first, last = self._byte_at(from_ms), self._byte_at(to_ms)
        pcm = self._recording.pcm
        if not self._repeats:
            return pcm[first:last].ljust(last - first, b"\0")
        offset = first % len(pcm)
        rounds = (offset + last - first) // len(pcm) + 1
        return (pcm * rounds)[offset : offset + last - first]

    def _byte_at(self, at_ms: int) -> int:
        return at_ms * self._recording.rate_hz // 1000 * 2

    def _ends_ms(self, from_ms: int, to_ms: int) -> list[float]:
        length_ms = self._length_ms
        rounds = {int(from_ms // length_ms), int(to_ms // length_ms)} if self._repeats else {0}
        ends = (n * length_ms + span.end_ms for n in sorted(rounds) for span in self._spans)
        return sorted(end for end in ends if from_ms < end <= to_ms)
