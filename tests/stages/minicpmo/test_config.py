import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stages.minicpmo import tiny_checkpoint
from stages.minicpmo.checkpoint_files import CheckpointUnreadable
from stages.minicpmo.config import MiniCPMOConfig, read_config
from tests.stages.minicpmo import vectors

TINY: dict[str, Any] = json.loads((tiny_checkpoint.DATA / "config.json").read_text())


def write(folder: Path, raw: dict[str, Any]) -> Path:
    (folder / "config.json").write_text(json.dumps(raw))
    return folder


def changed(name: str, change: Callable[[dict[str, Any], str], None]) -> dict[str, Any]:
    """Return the tiny config with one field changed; a dot leads into a section."""
    raw = copy.deepcopy(TINY)
    *sections, field = name.split(".")
    place = raw
    for section in sections:
        place = place[section]
    change(place, field)
    return raw


def setting(value: object) -> Callable[[dict[str, Any], str], None]:
    return lambda place, field: place.update({field: value})


def refusal(folder: Path, raw: dict[str, Any]) -> CheckpointUnreadable:
    with pytest.raises(CheckpointUnreadable) as caught:
        read_config(write(folder, raw))
    assert caught.value.file == folder / "config.json"
    return caught.value


def test_the_recorded_config_is_the_packaged_one() -> None:
    recorded = vectors.load("context.json")["config"]
    assert {name: TINY[name] for name in recorded} == recorded


def test_the_tiny_sizes_are_read(tmp_path: Path) -> None:
    config = read_config(write(tmp_path, TINY))
    assert (config.llm.hidden_size, config.llm.head_dim, config.llm.vocab_size) == (128, 32, 151748)
    assert (config.audio.d_model, config.audio.max_source_positions) == (64, 1500)
    assert (config.vision.num_hidden_layers, config.vision_layers) == (2, 2)
    assert (config.resampler_heads, config.query_num, config.audio_pool_step) == (1, 64, 5)
    assert (config.tts.num_audio_tokens, config.tts.audio_bos_token_id) == (6562, 151687)
    assert config.slices.scale_resolution == 448
    assert isinstance(config.llm.rope_theta, float)


def released() -> dict[str, Any]:
    """Return the released sizes as their file is saved: without what equals a class's default."""
    raw = copy.deepcopy(TINY)
    raw |= {
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "drop_vision_last_layer": True,
        "slice_config": {"max_slice_nums": 1, "model_type": "minicpmv"},
    }
    raw["audio_config"] = {
        "d_model": 1024,
        "encoder_layers": 24,
        "encoder_attention_heads": 16,
        "encoder_ffn_dim": 4096,
    }
    raw["vision_config"] |= {
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_attention_heads": 16,
        "num_hidden_layers": 27,
    }
    names = ("num_audio_tokens", "num_text_tokens", "audio_bos_token_id", "text_eos_token_id")
    raw["tts_config"] = {name: raw["tts_config"][name] for name in names} | {"llm_dim": 4096}
    return raw


def test_defaults_of_the_published_classes_stand_for_what_a_file_leaves_out(tmp_path: Path) -> None:
    config = read_config(write(tmp_path, released()))
    assert (config.audio.num_mel_bins, config.audio.max_source_positions) == (80, 1500)
    assert (config.tts.hidden_size, config.tts.num_hidden_layers) == (768, 20)
    assert (config.slices.patch_size, config.slices.scale_resolution) == (14, 448)
    assert (config.vision_layers, config.resampler_heads) == (26, 32)


def test_a_file_may_have_no_slice_config(tmp_path: Path) -> None:
    raw = changed("slice_config", lambda place, field: place.pop(field))
    assert read_config(write(tmp_path, raw)).slices.max_slice_nums == 1


def test_newer_files_have_the_rotation_in_an_object(tmp_path: Path) -> None:
    raw = changed("rope_theta", lambda place, field: place.pop(field))
    raw["rope_parameters"] = {"rope_theta": 5e5, "rope_type": "default"}
    assert read_config(write(tmp_path, raw)).llm.rope_theta == 5e5


def test_fields_that_nobody_knows_are_not_looked_at(tmp_path: Path) -> None:
    raw = TINY | {"transformers_version": "4.51.0", "auto_map": {"AutoModel": "x.Y"}}
    assert read_config(write(tmp_path, raw)) == read_config(write(tmp_path, TINY))


REQUIRED = (
    "model_type",
    "hidden_size",
    "num_key_value_heads",
    "vocab_size",
    "rope_theta",
    "audio_config",
    "audio_config.d_model",
    "vision_config",
    "vision_config.patch_size",
    "tts_config",
    "tts_config.llm_dim",
    "tts_config.num_audio_tokens",
)


@pytest.mark.parametrize("name", REQUIRED)
def test_a_missing_field_is_named(tmp_path: Path, name: str) -> None:
    error = refusal(tmp_path, changed(name, lambda place, field: place.pop(field)))
    assert error.problem.startswith(f"{name}: missing")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model_type", "minicpmv"),
        ("version", "2.6"),
        ("hidden_size", "128"),
        ("hidden_size", 0),
        ("hidden_size", -128),
        ("hidden_size", 128.0),
        ("hidden_size", True),
        ("hidden_size", None),
        ("rope_theta", False),
        ("rope_theta", float("inf")),
        ("rope_theta", float("nan")),
        ("rope_scaling", {"type": "yarn"}),
        ("attention_bias", True),
        ("tie_word_embeddings", True),
        ("drop_vision_last_layer", 1),
        ("audio_chunk_length", 0),
        ("audio_config", [1]),
        ("audio_config.encoder_layers", 2.5),
        ("audio_config.num_mel_bins", 128),
        ("audio_config.activation_function", "relu"),
        ("vision_config.layer_norm_eps", "1e-6"),
        ("slice_config", 3),
        ("slice_config.max_slice_nums", []),
        ("tts_config.condition_type", 7),
    ],
)
def test_an_odd_value_is_named(tmp_path: Path, name: str, value: object) -> None:
    assert refusal(tmp_path, changed(name, setting(value))).problem.startswith(f"{name}: ")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_attention_heads", 3),
        ("hidden_size", 192),
        ("audio_pool_step", 7),
        ("audio_config.encoder_attention_heads", 3),
        ("audio_config.encoder_ffn_dim", 128),
        ("vision_config.num_attention_heads", 5),
        ("tts_config.num_attention_heads", 5),
        ("tts_config.num_key_value_heads", 3),
        ("tts_config.llm_dim", 64),
        ("tts_config.audio_bos_token_id", 152_064),
        ("slice_config.patch_size", 16),
    ],
)
def test_sizes_that_contradict_each_other_are_named(
    tmp_path: Path, name: str, value: object
) -> None:
    # What is divided is named, and some values stand beside those that they divide.
    subject = {
        "audio_config.encoder_attention_heads": "audio_config.d_model",
        "vision_config.num_attention_heads": "vision_config.hidden_size",
        "tts_config.num_attention_heads": "tts_config.hidden_size",
        "tts_config.num_key_value_heads": "tts_config.num_attention_heads",
    }.get(name, name)
    assert refusal(tmp_path, changed(name, setting(value))).problem.startswith(subject)


def test_the_only_vision_layer_can_not_be_dropped(tmp_path: Path) -> None:
    raw = changed("vision_config.num_hidden_layers", setting(1))
    raw["drop_vision_last_layer"] = True
    assert "num_hidden_layers" in refusal(tmp_path, raw).problem


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000])
def test_a_file_that_is_no_object_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(CheckpointUnreadable, match="JSON"):
        read_config(tmp_path)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(CheckpointUnreadable, match="UTF-8"):
        read_config(tmp_path)


def test_a_folder_without_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointUnreadable, match="can not be read"):
        read_config(tmp_path / "nowhere")


def test_config_and_error_cross_a_process_boundary(tmp_path: Path) -> None:
    config = read_config(write(tmp_path, TINY))
    copied: MiniCPMOConfig = pickle.loads(pickle.dumps(config))
    assert copied == config
    error = refusal(tmp_path, changed("hidden_size", setting(0)))
    twin = pickle.loads(pickle.dumps(error))
    assert (twin.file, twin.problem, str(twin)) == (error.file, error.problem, str(error))
