"""Delays between attempts that a test sees and rules."""

import asyncio

from clients.duplex import ClientLimits
from clients.resuming import ResumePolicy


class Waits:
    """Delays that pass at once, and are written down."""

    def __init__(self) -> None:
        self.delays_s: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.delays_s.append(seconds)
        await asyncio.sleep(0)

    def limits(self, *, draw: float = 0.5, **changes: float) -> ClientLimits:
        policy = ResumePolicy(draw=lambda: draw, sleep=self.sleep, **changes)  # type: ignore[arg-type]  # fields
        return ClientLimits(resume=policy)


class Blocked(Waits):
    """A delay that lasts until the test lets it pass."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()
        self.passes = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.delays_s.append(seconds)
        self.begun.set()
        await self.passes.wait()
