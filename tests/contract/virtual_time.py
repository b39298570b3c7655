"""An event loop whose time passes only when there is nothing left to do.

Everything that waits for a time waits on this loop, so a story of minutes runs in milliseconds, and
the same story runs the same way every time. Work in threads takes no time at all: it is waited for.
"""

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


THREAD_PATIENCE_S = 10.0
"""Real time: only a thread that has gone wrong ever takes so long."""


class NothingCanHappen(Exception):
    """Everybody waits for somebody else, and no timer is set."""


class _Jumping(selectors.SelectSelector):
    """Never waits but for threads: when nothing is ready, time jumps to the next timer."""

    def __init__(self) -> None:
        super().__init__()
        self.jump: Callable[[float], None] = _stand_still
        self.working: set[asyncio.Future[Any]] = set()
        """What threads are doing."""
        self.has_threads = False
        """There are threads, so that the loop's end is their end, too."""

    def select(self, timeout: float | None = None) -> list[Any]:
        """Return what is ready."""
        is_waiting = bool(self.working) or (timeout is None and self.has_threads)
        ready = super().select(THREAD_PATIENCE_S if is_waiting and timeout != 0 else 0)
        if ready:
            return ready
        if timeout is None:
            raise NothingCanHappen
        self.jump(timeout)
        return []


def _stand_still(_: float) -> None:
    """Let no time pass."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """Begins at 0 seconds."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._jumping = _Jumping()
        self._jumping.jump = self._pass
        super().__init__(self._jumping)

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run it in a thread; time stands still until it is done."""
        future = super().run_in_executor(executor, func, *args)
        self._jumping.has_threads = True
        self._jumping.working.add(future)
        future.add_done_callback(self._jumping.working.discard)
        return future

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
