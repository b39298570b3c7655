"""The latch of one lease: wakes every call that waits when the lease is over.

Rule 1: each call ends exactly once: by its answer, its error, its timeout, or the latch.
Rule 2: after the latch has closed a call fails before it is submitted.
Rule 3: an answer that comes after its call has ended changes nothing and is counted.
Rule 4: a call that ends before its answer came is abandoned, so that the other side may stop.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from session.errors import StageError, StageTimeout

T = TypeVar("T")


class Latch:
    """Open until somebody closes it, with the error that every call gets then."""

    def __init__(self) -> None:
        self._closed: asyncio.Future[StageError] = asyncio.get_running_loop().create_future()
        self._waiting: set[asyncio.Future[Any]] = set()
        self.late_answers = 0

    @property
    def is_closed(self) -> bool:
        """Whether later calls fail at once."""
        return self._closed.done()

    @property
    def waiting(self) -> int:
        """Calls that have not ended."""
        return len(self._waiting)

    def close(self, error: StageError) -> None:
        """End every call with `error`; a second close changes nothing."""
        if not self._closed.done():
            self._closed.set_result(error)

    def check(self) -> None:
        """Raise the error that the latch was closed with, if it is closed."""
        if self._closed.done():
            raise self._closed.result()

    async def call(
        self,
        submit: Callable[[], Awaitable[T]],
        *,
        abandon: Callable[[], None],
        timeout_s: float,
    ) -> T:
        """Submit a call and wait for its end; `abandon` tells the other side to stop."""
        self.check()
        answer = asyncio.ensure_future(submit())
        self._waiting.add(answer)
        waits: set[asyncio.Future[Any]] = {answer, self._closed}
        try:
            await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            self.check()
            if not answer.done():
                raise StageTimeout(f"no answer within {timeout_s:g} s")
            return answer.result()
        finally:
            self._waiting.discard(answer)
            if not answer.done():
                answer.add_done_callback(self._count_late)
                abandon()
            elif not answer.cancelled():
                answer.exception()  # seen, whoever else ended the call

    def _count_late(self, answer: asyncio.Future[Any]) -> None:
        if not answer.cancelled() and answer.exception() is None:
            self.late_answers += 1
