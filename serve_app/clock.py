"""The clocks: the one place where time is read and timers are set."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A pending call that can be taken back."""

    def cancel(self) -> None:
        """Never make the call; harmless when it was made already."""
        ...


class Clock(Protocol):
    """Seconds that only grow, and calls at a point of them."""

    def now(self) -> float:
        """Seconds since an arbitrary start."""
        ...

    def call_at(self, at_s: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` once when the clock reaches `at_s`, at once if it has."""
        ...


class MonotonicClock:
    """The machine's monotonic clock, with timers on the running event loop."""

    def now(self) -> float:
        """Seconds of `time.monotonic`."""
        return time.monotonic()

    def call_at(self, at_s: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` at `at_s` on the running event loop."""
        # The loop's own clock may have another origin (uvloop), so the delay is what counts.
        delay_s = max(0.0, at_s - self.now())
        return asyncio.get_running_loop().call_later(delay_s, callback)


def unix_now_s() -> int:
    """Whole seconds of the wall clock, for what is told to others; never to measure with."""
    return int(time.time())  # noqa: TID251 - the one place


def unix_now_ns() -> int:
    """Nanoseconds of the wall clock, for traces, which are put together from several machines."""
    return time.time_ns()


async def sleep_until(clock: Clock, at_s: float) -> None:
    """Wait until the clock reaches `at_s`."""
    reached = asyncio.Event()
    timer = clock.call_at(at_s, reached.set)
    try:
        await reached.wait()
    finally:
        timer.cancel()
