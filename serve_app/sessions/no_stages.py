"""The stages of a session that may not have any: it is told so as one that finds no free slot."""

from dataclasses import dataclass
from typing import NoReturn

from serve_app.ports import StageDirectory
from session.config import RuntimeConfig
from session.errors import LimitError
from session.fence import Fence
from stages.descriptor import Descriptor


@dataclass(frozen=True, slots=True)
class NoStages:
    """Implements `serve_app.ports.StageDirectory`; no stage is asked for anything."""

    others: StageDirectory
    """Where sessions get their stages from that may have some."""
    error: LimitError

    @property
    def descriptor(self) -> Descriptor:
        """The deployed model."""
        return self.others.descriptor

    async def open(self, fence: Fence, runtime: RuntimeConfig) -> NoReturn:
        """Refuse."""
        del fence, runtime
        raise self.error

    async def health(self) -> dict[str, str]:
        """Answer of each stage."""
        return await self.others.health()
