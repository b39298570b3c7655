"""How a client that has a quota gets its stages: its open is counted, or it gets none."""

from collections.abc import Callable
from typing import NoReturn

from serve_app.ports import StageOpener, StageSession
from session.config import RuntimeConfig
from session.errors import AdmissionRefused, LimitError
from session.fence import Fence


def counted(open_stages: StageOpener, give_back: Callable[[], None]) -> StageOpener:
    """Open stages as before; a client that finds no free slot has opened nothing."""

    async def open_counted(fence: Fence, runtime: RuntimeConfig) -> StageSession:
        try:
            return await open_stages(fence, runtime)
        except AdmissionRefused:
            give_back()
            raise

    return open_counted


def refused(error: LimitError) -> StageOpener:
    """Ask no stage for anything: the client is told as one that finds no free slot."""

    async def refuse(fence: Fence, runtime: RuntimeConfig) -> NoReturn:
        del fence, runtime
        raise error

    return refuse
