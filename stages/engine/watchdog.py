"""Tells when the engine is dead or stuck.

Rule 1: it is stuck when something that it was asked for has brought nothing for a whole limit, and
        nothing else has, either: an engine that works for others is busy.
Rule 2: time is counted in looks, not read from a clock: while this process itself stands still,
        the engine's answers lie unread, and that is not the engine's fault.
Rule 3: the first reason stands.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

LOOKS = 10
"""How often one limit is looked at; a stuck engine is found that exactly."""

Pause = Callable[[float], Awaitable[object]]


class Watch:
    """One thing that the engine was asked for."""

    def __init__(self, what: str, on_progress: Callable[[], None]) -> None:
        self.what = what
        self._on_progress = on_progress
        self.looks_without_output = 0

    def progressed(self) -> None:
        """Note that something came."""
        self.looks_without_output = 0
        self._on_progress()


class Watchdog:
    """Watches all that the engine was asked for."""

    def __init__(self, stuck_after_s: float, pause: Pause = asyncio.sleep) -> None:
        self._stuck_after_s = stuck_after_s
        self._pause = pause
        self._watched: set[Watch] = set()
        self._silent_looks = 0
        """Looks since anything came for anyone."""
        self.death: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Gets the reason."""

    @contextmanager
    def watching(self, what: str) -> Iterator[Watch]:
        """Expect output until the block ends."""
        watch = Watch(what, self._note_progress)
        self._watched.add(watch)
        try:
            yield watch
        finally:
            self._watched.discard(watch)

    def _note_progress(self) -> None:
        self._silent_looks = 0

    def declare_dead(self, reason: str) -> None:
        """Note that the engine is dead."""
        if not self.death.done():
            self.death.set_result(reason)

    async def run(self, dead: Awaitable[str]) -> None:
        """Watch until the engine is dead; `dead` returns the reason when the backend is."""
        looking = asyncio.ensure_future(self._look_for_ever())
        try:
            self.declare_dead(await dead)
        except Exception as error:  # noqa: BLE001 - who can not tell whether it lives is dead
            self.declare_dead(f"{type(error).__name__}: {error}")
        finally:
            looking.cancel()
            with suppress(asyncio.CancelledError):
                await looking

    async def _look_for_ever(self) -> None:
        while True:
            await self._pause(self._stuck_after_s / LOOKS)
            self.look()

    def look(self) -> None:
        """Count one look, and declare the engine dead if it is stuck."""
        self._silent_looks += 1
        for watch in self._watched:
            watch.looks_without_output += 1
            if min(watch.looks_without_output, self._silent_looks) > LOOKS:
                self.declare_dead(
                    f"the engine is stuck: no output for {self._stuck_after_s:g} s for {watch.what}"
                )
