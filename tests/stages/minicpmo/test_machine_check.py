"""What would keep the model from starting here is said before it is tried."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from stages.minicpmo.config import read_config
from stages.minicpmo.machine_check import faults, position_bytes, talker_position_bytes
from stages.minicpmo.settings import read_settings

pytestmark = pytest.mark.models

CPU: dict[str, Any] = {"checkpoint": "x", "device": "cpu", "dtype": "float32"}


@pytest.fixture(name="cpu")
def settings_with_a_voice(tiny_voice_files: Path) -> dict[str, Any]:
    return {**CPU, "voice": {"folder": str(tiny_voice_files)}}


def test_a_good_folder_has_no_fault(tiny_folder: Path, cpu: dict[str, Any]) -> None:
    assert list(faults(read_settings(cpu), tiny_folder)) == []


def without_a_field(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    del config["num_hidden_layers"]
    (folder / "config.json").write_text(json.dumps(config))


def cut_short(folder: Path) -> None:
    file = folder / "model.safetensors"
    data = file.read_bytes()
    file.unlink()
    file.write_bytes(data[: len(data) // 2])


def with_another_condition(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["tts_config"]["condition_type"] = "llm_hidden"
    (folder / "config.json").write_text(json.dumps(config))


def without_a_tokenizer(folder: Path) -> None:
    for name in ("tokenizer.json", "vocab.json"):
        (folder / name).unlink()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (without_a_field, "num_hidden_layers"),
        (cut_short, "model.safetensors"),
        (without_a_tokenizer, "vocab.json"),
        (with_another_condition, "tts_config.condition_type"),
        (shutil.rmtree, "is not a folder"),
    ],
)
def test_a_damaged_folder_is_named(
    tiny_folder: Path,
    cpu: dict[str, Any],
    tmp_path: Path,
    damage: Callable[[Path], None],
    said: str,
) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(tiny_folder, folder)
    damage(folder)
    [fault] = faults(read_settings(cpu), folder)
    assert said in fault
    shutil.rmtree(folder, ignore_errors=True)


def test_a_gpu_that_is_not_there_is_missed(
    tiny_folder: Path, cpu: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    [fault] = faults(read_settings({**cpu, "device": "cuda"}), tiny_folder)
    assert "no GPU" in fault


@pytest.mark.parametrize("engine", ["language_model", "talker"])
def test_too_little_memory_is_counted(tiny_folder: Path, cpu: dict[str, Any], engine: str) -> None:
    config = read_config(tiny_folder)
    one = {
        "language_model": position_bytes(config, "float32"),
        "talker": talker_position_bytes(config.tts, "float32"),
    }[engine]
    assert one == 2 * 2 * 2 * 32 * 4
    memory = {"max_sessions": 2, "session_tokens": 1000, "kv_cache_memory_bytes": 2000 * one - 1}
    [fault] = faults(read_settings({**cpu, engine: memory}), tiny_folder)
    assert fault.startswith(f"{engine}.kv_cache_memory_bytes must be {2000 * one} at least")


def test_a_talker_takes_no_more_than_its_checkpoint_has(
    tiny_folder: Path, cpu: dict[str, Any]
) -> None:
    """Its sessions are the language model's where they are not set."""
    one = talker_position_bytes(read_config(tiny_folder).tts, "float32")
    talker = {"session_tokens": 5000, "kv_cache_memory_bytes": 3 * 4096 * one}
    settings = {**cpu, "language_model": {"max_sessions": 3}, "talker": talker}
    assert list(faults(read_settings(settings), tiny_folder)) == []


@pytest.mark.parametrize(
    ("remove", "said"),
    [
        ("flow.pt", "lacks flow.pt"),
        ("hift.pt", "lacks hift.pt"),
        ("voice.npz", "no voice to speak with: let model_settings.voice.prompt"),
        ("campplus.onnx", "campplus.onnx"),
        ("", "voice.folder"),
    ],
)
def test_what_a_voice_lacks_is_named(
    tiny_folder: Path, tiny_voice_files: Path, tmp_path: Path, remove: str, said: str
) -> None:
    folder = tmp_path / "voice"
    shutil.copytree(tiny_voice_files, folder)
    if remove:
        (folder / remove).unlink()
    else:
        shutil.rmtree(folder)
    [fault] = faults(read_settings({**CPU, "voice": {"folder": str(folder)}}), tiny_folder)
    assert fault.startswith("voice")
    assert said in fault


def test_what_stands_for_a_file_that_was_not_fetched_is_named(
    tiny_folder: Path, tiny_voice_files: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "voice"
    shutil.copytree(tiny_voice_files, folder)
    (folder / "flow.pt").write_text("version https://git-lfs.github.com/spec/v1\n")
    [fault] = faults(read_settings({**CPU, "voice": {"folder": str(folder)}}), tiny_folder)
    assert "flow.pt has 43 bytes" in fault


def test_a_voice_of_a_later_kind_is_refused(
    tiny_folder: Path, tiny_voice_files: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "voice"
    shutil.copytree(tiny_voice_files, folder)
    (folder / "hift_original.pt").touch()
    [fault] = faults(read_settings({**CPU, "voice": {"folder": str(folder)}}), tiny_folder)
    assert "later generation" in fault


def test_a_voice_lies_in_the_checkpoint_where_no_folder_is_named(
    tiny_folder: Path, tiny_voice_files: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(tiny_folder, folder)
    [fault] = faults(read_settings(CPU), folder)
    assert str(folder / "assets" / "token2wav") in fault
    shutil.copytree(tiny_voice_files, folder / "assets" / "token2wav")
    assert list(faults(read_settings(CPU), folder)) == []
    shutil.rmtree(folder)


def test_made_up_weights_need_no_folder(tiny_folder: Path) -> None:
    settings = {**CPU, "talker": {"load_format": "dummy"}}
    assert list(faults(read_settings(settings), tiny_folder)) == []
