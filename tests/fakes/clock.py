"""A clock that moves when a test says so."""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(order=True)
class FakeTimer:
    """A pending call of a FakeClock."""

    at_s: float
    number: int
    callback: Callable[[], None] = field(compare=False)
    is_cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        """Never make the call."""
        self.is_cancelled = True


class FakeClock:
    """Implements `serve_app.clock.Clock` without waiting."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._numbers = itertools.count()
        self._timers: list[FakeTimer] = []

    def now(self) -> float:
        """Seconds since the test began."""
        return self._now_s

    def call_at(self, at_s: float, callback: Callable[[], None]) -> FakeTimer:
        """Call `callback` when `advance` reaches `at_s`."""
        timer = FakeTimer(at_s, next(self._numbers), callback)
        heapq.heappush(self._timers, timer)
        return timer

    @property
    def pending(self) -> int:
        """Timers that would still fire."""
        return sum(not timer.is_cancelled for timer in self._timers)

    def advance(self, by_s: float) -> None:
        """Let time pass; make the calls that come due, in order."""
        until = self._now_s + by_s
        while self._timers and self._timers[0].at_s <= until:
            timer = heapq.heappop(self._timers)
            self._now_s = max(self._now_s, timer.at_s)
            if not timer.is_cancelled:
                timer.callback()
        self._now_s = until
