"""The real conversion: once for two processes that start together, and again when it is damaged."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stages.embedded.conversation import Conversation
from stages.embedded.language_model import LanguageModel
from stages.embedded.ports import Writing
from stages.embedded.prepare import prepare_language_model

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "stages.embedded.prepare"]

pytestmark = [pytest.mark.models, pytest.mark.timeout(240)]


def test_two_processes_convert_once_and_damage_is_repaired(tmp_path: Path) -> None:
    environment = {**os.environ, "DUPLEX_CACHE": str(tmp_path)}
    both = [
        subprocess.Popen(COMMAND, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    told = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert "".join(told).count("converting the weights for ctranslate2") == 1
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert all(f"language model: {folder}" in text for text in told)

    weights = folder / "model.bin"
    with weights.open("r+b") as file:
        file.seek(weights.stat().st_size // 2)
        file.write(b"damage")
    lines: list[str] = []
    assert prepare_language_model(tmp_path, report=lines.append) == folder
    assert any("model.bin is missing or damaged" in line for line in lines)

    model = LanguageModel.load(folder, instructions="Be brief.", workers=1, threads=1)
    words: list[str] = []

    def take(piece: str) -> bool:
        words.append(piece)
        return False

    prompt = model.prompt("", Conversation().user_said("What is the capital of Italy?"), 0)
    model.write(prompt, Writing(20), take)
    assert "Rome" in "".join(words)
