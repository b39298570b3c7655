"""An event loop whose time passes only when there is nothing left to do.

Everything that waits for a time waits on this loop, so a story of minutes runs in milliseconds, and
the same story runs the same way every time.
"""

import asyncio
import selectors
from collections.abc import Callable
from typing import Any


class NothingCanHappen(Exception):
    """Everybody waits for somebody else, and no timer is set."""


class _Jumping(selectors.SelectSelector):
    """Never waits: when nothing is ready, time jumps to the next timer."""

    def __init__(self, jump: Callable[[float], None]) -> None:
        super().__init__()
        self._jump = jump

    def select(self, timeout: float | None = None) -> list[Any]:
        """Return what is ready."""
        ready = super().select(0)
        if ready:
            return ready
        if timeout is None:
            raise NothingCanHappen
        self._jump(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Begins at 0 seconds."""

    def __init__(self) -> None:
        self._now_s = 0.0
        super().__init__(_Jumping(self._pass))

    def _pass(self, by_s: float) -> None:
        self._now_s += by_s

    def time(self) -> float:
        """Seconds since the loop began."""
        return self._now_s


class VirtualClock:
    """Implements `serve_app.clock.Clock` on the running VirtualLoop."""

    def now(self) -> float:
        """Seconds since the loop began."""
        return asyncio.get_running_loop().time()

    def call_at(self, at_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Call `callback` at `at_s`, at once if that is past."""
        loop = asyncio.get_running_loop()
        return loop.call_at(max(at_s, loop.time()), callback)


def run_in_virtual_time(story: Callable[[], Any]) -> None:
    """Run a coroutine function to its end."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(story())
