"""One engine of each kind for all tests, for it takes half a minute to start."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from stages.minicpmo.tiny_checkpoint import write_tiny_checkpoint
from stages.minicpmo.tiny_voice import tiny_voice_folder
from tests.support.engines_apart import ENGINE_OF, share_of
from tests.support.minicpmo_engine import MiniCPMOEngine
from tests.support.running_minicpmo import RunningMiniCPMO, running_minicpmo
from tests.support.running_voice import RunningVoice, running_voice
from tests.support.talker_engine import TalkerEngine, talker_on
from tests.support.tiny_minicpmo import golden_texts
from tests.support.vllm_rig import ONE_THREAD, VllmRig, start_rig

ENGINES: Final = set(ENGINE_OF.values())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let vLLM and what it is made of use what is deprecated; look who shares an engine."""
    for item in items:
        if item.get_closest_marker("vllm"):
            item.add_marker(pytest.mark.filterwarnings("ignore"))
        used = ENGINES & set(item.fixturenames) if isinstance(item, pytest.Function) else set()
        if used - {share_of(item.nodeid)}:
            raise pytest.UsageError(f"{item.path.name}: name its engine in {share_of.__module__}")


@pytest.fixture(scope="session", autouse=True)
def _environment() -> None:
    """Let engines find nothing outside, and share the cores with each other."""
    for name in ("HF_HUB_OFFLINE", "VLLM_NO_USAGE_STATS", "DO_NOT_TRACK"):
        os.environ.setdefault(name, "1")
    for name, value in ONE_THREAD.items():
        os.environ.setdefault(name, value)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the tiny checkpoint's folder; its words are the recorded ones."""
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
async def whole(tiny_folder: Path) -> AsyncIterator[RunningMiniCPMO]:
    """Run MiniCPM-o's Stage0; tests must have the session's loop."""
    async with running_minicpmo(tiny_folder) as running:
        yield running


@pytest.fixture(scope="session")
def minicpmo(whole: RunningMiniCPMO) -> MiniCPMOEngine:
    """Return its language model with its policy, without the rest of the stage."""
    return MiniCPMOEngine(whole.engine, whole.tap)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def voice(
    tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[RunningVoice]:
    """Run MiniCPM-o's Stage1; tests must have the session's loop."""
    folder = tiny_voice_folder(tmp_path_factory.mktemp("voice"))
    async with running_voice(tiny_folder, folder) as running:
        yield running


@pytest.fixture(scope="session")
def talker(voice: RunningVoice, tiny_folder: Path) -> TalkerEngine:
    """Return its talker with the rules of the recording, without the rest of the stage."""
    return talker_on(voice.engine, tiny_folder, voice.settings.talker.session_tokens)
