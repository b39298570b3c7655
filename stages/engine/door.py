"""The door in front of the engine: who goes in next.

Rule 1: of one session at most one segment is inside.
Rule 2: at most `places` segments are inside.
Rule 3: of those that wait and may go in, the one with the earliest deadline does; of equal ones,
        the one that came first.
Rule 4: whoever gives up waiting leaves no trace, also when its turn had come at that moment.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(order=True, slots=True)
class _Waiter:
    deadline_s: float
    number: int
    key: str = field(compare=False)
    turn: asyncio.Future[None] = field(compare=False)


class Door:
    """Lets segments in by deadline."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._inside: set[str] = set()
        self._waiting: list[_Waiter] = []
        self._count = 0

    @property
    def inside(self) -> frozenset[str]:
        """The sessions that have a segment inside."""
        return frozenset(self._inside)

    @property
    def waiting(self) -> int:
        """How many segments wait."""
        return len(self._waiting)

    @asynccontextmanager
    async def enter(self, key: str, deadline_s: float) -> AsyncIterator[None]:
        """Wait for a turn, and be inside until the block ends."""
        await self._wait(key, deadline_s)
        try:
            yield
        finally:
            self._leave(key)

    async def _wait(self, key: str, deadline_s: float) -> None:
        self._count += 1
        turn = asyncio.get_running_loop().create_future()
        waiter = _Waiter(deadline_s, self._count, key, turn)
        self._waiting.append(waiter)
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            else:
                self._leave(key)
            raise

    def _leave(self, key: str) -> None:
        self._inside.remove(key)
        self._admit()

    def _admit(self) -> None:
        for waiter in sorted(self._waiting):
            if len(self._inside) >= self._places:
                return
            if waiter.key not in self._inside and not waiter.turn.done():
                self._waiting.remove(waiter)
                self._inside.add(waiter.key)
                waiter.turn.set_result(None)
