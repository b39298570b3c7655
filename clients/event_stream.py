"""The client's event stream: bounded, and never silent about a lost event.

Rule 1: events are kept from the start, so a program may begin to iterate after the open.
Rule 2: a program that has not begun when the bound is reached evidently does not iterate: the
        kept events are let go, and an iteration that begins later says so (`EventsNotKept`).
Rule 3: once iterated, a full stream makes the reader wait, which is backpressure on the server.
        If nothing is taken for `stall_s`, the client fails (`EventBacklogFull`).
"""

import asyncio
from collections import deque

from clients.errors import EventBacklogFull, EventsNotKept
from clients.events import ServerEvent


class EventStream:
    """An async iterator over events with one reader task as its source."""

    def __init__(self, *, bound: int, stall_s: float) -> None:
        self._bound = bound
        self._stall_s = stall_s
        self._kept: deque[ServerEvent] = deque()
        self._is_wanted = False
        self._has_let_go = False
        self._is_finished = False
        self._failure: Exception | None = None
        self._changed = asyncio.Event()

    async def put(self, event: ServerEvent) -> None:
        """Add one event; waits while the program is behind."""
        if not self._is_wanted:
            if len(self._kept) >= self._bound:
                self._kept.clear()
                self._has_let_go = True
            if not self._has_let_go:
                self._kept.append(event)
            return
        while len(self._kept) >= self._bound:
            await self._wait_for_room()
        self._kept.append(event)
        self._changed.set()

    async def _wait_for_room(self) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout(self._stall_s):
                await self._changed.wait()
        except TimeoutError:
            raise EventBacklogFull(
                f"{self._bound} events wait and none was taken for {self._stall_s:g} s; "
                "keep iterating the client, or do not begin"
            ) from None

    def finish(self, failure: Exception | None) -> None:
        """End the stream; what is kept is still delivered, then `failure` is raised, if any."""
        self._is_finished, self._failure = True, failure
        self._changed.set()

    def __aiter__(self) -> "EventStream":
        self._is_wanted = True
        return self

    async def __anext__(self) -> ServerEvent:
        if self._has_let_go:
            raise EventsNotKept(
                f"more than {self._bound} events came before the iteration began; "
                "iterate right after the open"
            )
        while not self._kept:
            if self._failure is not None:
                raise self._failure
            if self._is_finished:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        event = self._kept.popleft()
        self._changed.set()
        return event
