"""The real networks, loaded once for all tests that need them, and a stage without any."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

from session.config import RuntimeConfig
from stages.embedded.settings import EmbeddedSettings
from stages.embedded.stage0 import EmbeddedStage0
from stages.embedded.stage1 import EmbeddedStage1
from tests.support.embedded_rig import SID, Rig

NOW = datetime(2025, 3, 3, 15, 5, tzinfo=UTC)


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Run on a loop of its own: a test may have one already."""
    with ThreadPoolExecutor(1) as worker:
        worker.submit(asyncio.run, work).result()


@pytest.fixture(scope="session")
def stage0() -> EmbeddedStage0:
    """Return a warm hearing and answering half, at five past three on a Monday."""
    stage = EmbeddedStage0(EmbeddedSettings(silence_ms=400), lambda: NOW)
    _run(stage.warm_up())
    return stage


@pytest.fixture(scope="session")
def stage1() -> EmbeddedStage1:
    """Return a warm speaking half."""
    stage = EmbeddedStage1(EmbeddedSettings())
    _run(stage.warm_up())
    return stage


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    """Return a hearing and answering half without networks, with one open session."""
    rig = Rig()
    await rig.stage.warm_up()
    await rig.stage.open(SID, RuntimeConfig())
    yield rig
    await rig.stage.close(SID)
    assert not rig.model.was_starved
