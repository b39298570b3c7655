"""The stages of a session whose open was counted: the count is given back where no slot is free."""

from collections.abc import Callable
from dataclasses import dataclass

from serve_app.ports import StageDirectory, StageSession
from session.config import RuntimeConfig
from session.errors import AdmissionRefused
from session.fence import Fence
from stages.descriptor import Descriptor


@dataclass(frozen=True, slots=True)
class CountedStages:
    """Implements `serve_app.ports.StageDirectory`, with the stages of another one."""

    others: StageDirectory
    give_back: Callable[[], None]

    @property
    def descriptor(self) -> Descriptor:
        """The deployed model."""
        return self.others.descriptor

    async def open(self, fence: Fence, runtime: RuntimeConfig) -> StageSession:
        """Open the stages; a client that finds no free slot has opened nothing."""
        try:
            return await self.others.open(fence, runtime)
        except AdmissionRefused:
            self.give_back()
            raise

    async def health(self) -> dict[str, str]:
        """Answer of each stage."""
        return await self.others.health()
