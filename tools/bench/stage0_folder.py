"""A model folder without weights: a config of given sizes and the made-up tokenizer.

With `load_format: dummy` vLLM fills the language model with random numbers, and the encoders are
filled alike, so speed can be measured where the published checkpoint is not.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from stages.minicpmo.tiny_checkpoint import DATA, write_tokenizer
from stages.minicpmo.tiny_tokenizer import tiny_vocabulary

Sizes = Mapping[str, Any]
"""Fields of config.json that differ from the tiny checkpoint's; an object's are given inside it."""

PUBLISHED: Final[Sizes] = MappingProxyType(
    {
        "torch_dtype": "bfloat16",
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "drop_vision_last_layer": True,
        "vision_config": {
            "hidden_size": 1152,
            "intermediate_size": 4304,
            "num_attention_heads": 16,
            "num_hidden_layers": 27,
        },
        "audio_config": {
            "d_model": 1024,
            "encoder_layers": 24,
            "encoder_attention_heads": 16,
            "encoder_ffn_dim": 4096,
        },
        "tts_config": {
            "llm_dim": 4096,
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_attention_heads": 12,
            "num_key_value_heads": 12,
            "num_hidden_layers": 20,
        },
    }
)
"""MiniCPM-o 4.5: Qwen3-8B, Whisper medium's encoder, SigLIP 2."""

SMALL: Final[Sizes] = MappingProxyType({})
"""The tiny checkpoint's own sizes."""


def write_folder(folder: Path, sizes: Sizes) -> None:
    """Write config.json and the tokenizer's files; a folder that is there is overwritten."""
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads((DATA / "config.json").read_text(encoding="utf-8"))
    text = json.dumps(_merged(config, sizes), indent=1)
    (folder / "config.json").write_text(f"{text}\n", encoding="utf-8")
    write_tokenizer(folder, tiny_vocabulary({}))


def _merged(config: Mapping[str, Any], sizes: Sizes) -> dict[str, Any]:
    """Return the config with these sizes, objects field by field."""
    merged = dict(config)
    for name, value in sizes.items():
        merged[name] = _merged(config[name], value) if isinstance(value, dict) else value
    return merged
