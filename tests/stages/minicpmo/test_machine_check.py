"""What would keep the model from starting here is said before it is tried."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from stages.minicpmo.config import read_config
from stages.minicpmo.machine_check import faults, position_bytes
from stages.minicpmo.settings import read_settings

pytestmark = pytest.mark.models

CPU: dict[str, Any] = {"checkpoint": "x", "device": "cpu", "dtype": "float32"}


def test_a_good_folder_has_no_fault(tiny_folder: Path) -> None:
    assert list(faults(read_settings(CPU), tiny_folder)) == []


def without_a_field(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    del config["num_hidden_layers"]
    (folder / "config.json").write_text(json.dumps(config))


def cut_short(folder: Path) -> None:
    file = folder / "model.safetensors"
    data = file.read_bytes()
    file.unlink()
    file.write_bytes(data[: len(data) // 2])


def without_a_tokenizer(folder: Path) -> None:
    for name in ("tokenizer.json", "vocab.json"):
        (folder / name).unlink()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (without_a_field, "num_hidden_layers"),
        (cut_short, "model.safetensors"),
        (without_a_tokenizer, "vocab.json"),
        (shutil.rmtree, "is not a folder"),
    ],
)
def test_a_damaged_folder_is_named(
    tiny_folder: Path, tmp_path: Path, damage: Callable[[Path], None], said: str
) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(tiny_folder, folder)
    damage(folder)
    [fault] = faults(read_settings(CPU), folder)
    assert said in fault
    shutil.rmtree(folder, ignore_errors=True)


def test_a_gpu_that_is_not_there_is_missed(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    [fault] = faults(read_settings({"checkpoint": "x"}), tiny_folder)
    assert "no GPU" in fault


def test_too_little_memory_is_counted(tiny_folder: Path) -> None:
    one = position_bytes(read_config(tiny_folder), "float32")
    assert one == 2 * 2 * 2 * 32 * 4
    memory = {"max_sessions": 2, "session_tokens": 1000, "kv_cache_memory_bytes": 2000 * one - 1}
    [fault] = faults(read_settings({**CPU, "language_model": memory}), tiny_folder)
    assert f"must be {2000 * one} at least" in fault
