"""Futures for events that somebody waits for."""

import asyncio
from collections.abc import Callable

from clients.errors import EventsMissed
from clients.events import ConnectionLost, EventsLost, ServerEvent

Matches = Callable[[ServerEvent], bool]


class Expectations:
    """Resolves each expectation with the first event that matches it, or with the end."""

    def __init__(self) -> None:
        self._open: list[tuple[Matches, asyncio.Future[ServerEvent]]] = []
        self._at_risk: list[asyncio.Future[ServerEvent]] = []
        """Those who waited when the connection was lost."""
        self._failure: Exception | None = None

    def expect(self, matches: Matches) -> asyncio.Future[ServerEvent]:
        """Return a future of the first event from now on for which `matches` is true."""
        future: asyncio.Future[ServerEvent] = asyncio.get_running_loop().create_future()
        if self._failure is not None:
            fail_future(future, self._failure)
        else:
            self._open.append((matches, future))
        return future

    def offer(self, event: ServerEvent) -> None:
        """Give one event to everybody who waits for it."""
        still_open = []
        for matches, future in self._open:
            if future.done():  # its owner gave up
                continue
            if matches(event):
                future.set_result(event)
            else:
                still_open.append((matches, future))
        self._open = still_open
        match event:
            case ConnectionLost():
                self._at_risk = [future for _, future in still_open]
            case EventsLost(first_seq=first, last_seq=last):
                for future in self._at_risk:
                    fail_future(future, EventsMissed(first, last))
            case _:
                pass

    def fail(self, failure: Exception) -> None:
        """Fail everybody who waits, now and later."""
        self._failure = failure
        for _, future in self._open:
            fail_future(future, failure)
        self._open = []


def fail_future(future: "asyncio.Future[ServerEvent]", failure: Exception) -> None:
    """Fail a future that perhaps nobody awaits any more."""
    if not future.done():
        future.set_exception(failure)
        future.exception()  # marks it as seen, so that an abandoned one is not logged
