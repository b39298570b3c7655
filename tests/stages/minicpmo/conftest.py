"""One tiny checkpoint for all tests of a run."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from stages.minicpmo.tiny_checkpoint import write_tiny_checkpoint
from stages.minicpmo.tiny_voice import tiny_voice_folder
from tests.support.tiny_minicpmo import golden_texts


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a checkpoint whose recorded tokens say what was recorded; tests leave it as it is."""
    folder = tmp_path_factory.mktemp("minicpmo") / "tiny"
    write_tiny_checkpoint(folder, texts=golden_texts())
    yield folder
    # pytest keeps the folders of three runs, and this one is large.
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def tiny_voice_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of its voice; tests leave it as it is."""
    return tiny_voice_folder(tmp_path_factory.mktemp("voice"))
