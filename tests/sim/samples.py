"""Audio whose every piece is known again: pairs of samples are numbers, counted from 1."""

from array import array
from typing import Final

from session.unit import Unit
from tests.sim.violation import Violation

PAIRS_PER_MS: Final = 8
ITEMS_FROM: Final = 1 << 31
"""Audio that comes with items has numbers of its own: its place is its item's."""


def numbered(first: int, ms: int) -> bytes:
    """Return `ms` of 16 kHz PCM whose pairs are numbered from `first`."""
    return array("I", range(first, first + ms * PAIRS_PER_MS)).tobytes()


class Accepted:
    """What the model has taken of one session's audio: law 1, told by the audio itself."""

    def __init__(self) -> None:
        self._runs: list[tuple[int, int]] = []
        self._streamed = 0
        """The newest pair of the open stream."""
        self._newest = 0
        self._cancelled = 0
        """Everything up to here was cancelled by the client, but for what was at the model."""
        self._newest_of_items = self._cancelled_of_items = ITEMS_FROM - 1
        self._spared: list[tuple[int, int]] = []

    def came(self, pcm: bytes) -> None:
        """An append, or an item with audio, has come in."""
        if not pcm:
            return
        newest = array("I", pcm[-4:])[0]
        if newest < ITEMS_FROM:
            self._newest = newest
        else:
            self._newest_of_items = newest

    def cancel(self, out: Unit | None) -> None:
        """The client cancels its input; `out` is at the model."""
        self._cancelled, self._cancelled_of_items = self._newest, self._newest_of_items
        self._spared += [] if out is None else _runs(out.pcm)

    def take(self, unit: Unit) -> None:
        """The model has consumed a unit: nothing twice, and nothing out of order."""
        runs = _runs(unit.pcm)
        for first, last in runs:
            if any(first <= end and start <= last for start, end in self._runs):
                raise Violation(f"law 1: the model is given samples {first} to {last} again")
            cancelled = self._cancelled if last < ITEMS_FROM else self._cancelled_of_items
            until = min(last, cancelled)
            if first <= until and not any(a <= first and until <= b for a, b in self._spared):
                raise Violation(f"law 1: samples {first} to {until} were cancelled")
        streamed = [run for run in runs if run[1] < ITEMS_FROM]
        of_items = [run for run in runs if run[1] >= ITEMS_FROM]
        if streamed != sorted(streamed) or of_items != sorted(of_items):
            raise Violation("law 1: a unit's samples are out of order")
        is_stream = not (unit.closes_input or unit.is_heard_only)
        if of_items and is_stream:
            raise Violation("law 1: an item's audio is in the stream")
        if is_stream and runs:
            if runs[0][0] < self._streamed:
                raise Violation("law 1: the stream goes back")
            self._streamed = runs[-1][1]
        self._runs += runs


def _runs(pcm: bytes) -> list[tuple[int, int]]:
    """Return the stretches of consecutive numbers; silence is none."""
    numbers = array("I", pcm)
    runs: list[tuple[int, int]] = []
    start = 0
    while start < len(numbers):
        first = numbers[start]
        end = _end_of_run(numbers, start)
        if first:
            runs.append((first, first + end - start - 1))
        start = end
    return runs


def _end_of_run(numbers: "array[int]", start: int) -> int:
    """Find where the run that begins at `start` ends, by halving: runs are long and few."""
    first, low, high = numbers[start], start + 1, len(numbers)
    while low < high:
        middle = (low + high + 1) // 2
        is_run = first and numbers[middle - 1] == first + middle - 1 - start
        is_silence = not first and not any(numbers[low:middle])
        if is_run or is_silence:
            low = middle
        else:
            high = middle - 1
    return low
