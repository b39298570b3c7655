"""What a stage says of itself, for whoever asks the gateway's `/health`.

Rule 1: a stage is asked once at a time, however many ask the gateway; who asks may go away.
Rule 2: a stage that was well is waited for. One that was not, or has not come up yet, holds nobody
        up: after a moment the answer is what is known.
"""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from typing import Final

OK: Final = "ok"
MOMENT_S: Final = 1.0
"""Shorter than the patience of load balancers, which is often two seconds."""


class StageHealth:
    """The health of one stage."""

    def __init__(
        self, stage: str, ask: Callable[[], Awaitable[str]], *, moment_s: float = MOMENT_S
    ) -> None:
        """`ask` returns within a time of its own."""
        self._ask = ask
        self._moment_s = moment_s
        self._said = f"starting: {stage} has not answered yet"
        self._was_well = False
        self._asking: asyncio.Task[None] | None = None

    async def answer(self) -> str:
        """Return `ok`, or what is wrong."""
        asking = self._asking
        if asking is None or asking.done():
            # In a context of its own: a call made in that of a client's request would be cancelled
            # by Serve together with that request.
            asking = self._asking = asyncio.create_task(  # noqa: TID251 - `ask` ends by itself
                self._look(), context=contextvars.Context()
            )
        patience_s = None if self._said == OK else self._moment_s
        done, _ = await asyncio.wait({asking}, timeout=patience_s)
        for one in done:
            one.result()
        return self._said

    async def _look(self) -> None:
        said = await self._ask()
        self._was_well = self._was_well or said == OK
        self._said = said if self._was_well else f"starting: {said}"
