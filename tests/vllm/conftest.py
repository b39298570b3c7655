"""One engine of each kind for all tests, for it takes half a minute to start."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from stages.minicpmo.tiny_checkpoint import write_tiny_checkpoint
from tests.support.minicpmo_engine import MiniCPMOEngine, running_engine
from tests.support.talker_engine import TalkerEngine, running_talker
from tests.support.tiny_minicpmo import golden_texts
from tests.support.vllm_rig import VllmRig, start_rig


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let vLLM and what it is made of use what is deprecated."""
    for item in items:
        if item.get_closest_marker("vllm"):
            item.add_marker(pytest.mark.filterwarnings("ignore"))


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the tiny checkpoint's folder; its words are the recorded ones."""
    for name in ("HF_HUB_OFFLINE", "VLLM_NO_USAGE_STATS", "DO_NOT_TRACK"):
        os.environ.setdefault(name, "1")
    folder = tmp_path_factory.mktemp("tiny") / "minicpmo"
    write_tiny_checkpoint(folder, texts=golden_texts())
    return folder


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def vllm_rig(tiny_folder: Path) -> AsyncIterator[VllmRig]:
    """Run the engine; the tests that use it must have the session's loop."""
    rig = await start_rig(tiny_folder)
    yield rig
    await rig.engine.stop()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def minicpmo(tiny_folder: Path) -> AsyncIterator[MiniCPMOEngine]:
    """Run MiniCPM-o's language model with its policy; tests must have the session's loop."""
    async with running_engine(tiny_folder) as running:
        yield running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def talker(tiny_folder: Path) -> AsyncIterator[TalkerEngine]:
    """Run MiniCPM-o's talker; tests must have the session's loop."""
    async with running_talker(tiny_folder) as running:
        yield running
