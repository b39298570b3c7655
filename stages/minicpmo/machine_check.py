"""Says before a start what would keep MiniCPM-o from starting on this machine.

The service itself would find it too, but late, in a process of vLLM's, and Serve tries again and
again. So whoever starts a service here asks first.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import torch

from stages.minicpmo.checkpoint import TensorsMismatch, check_tensors
from stages.minicpmo.checkpoint_files import CheckpointUnreadable
from stages.minicpmo.config import MiniCPMOConfig, read_config
from stages.minicpmo.settings import MiniCPMOSettings
from stages.minicpmo.special_tokens import SpecialTokensMissing
from stages.minicpmo.tokenizer import Tokenizer

NETWORKS: Final = ("llm", "apm", "audio_projection_layer", "vpm", "resampler")


def faults(settings: MiniCPMOSettings, folder: Path) -> Iterator[str]:
    """Yield what is wrong: the machine, the folder's files, what they and the settings come to."""
    if settings.device == "cuda" and not torch.cuda.is_available():
        yield (
            "device: cuda, but torch finds no GPU here. With one, install the GPU's packages "
            "(make VLLM=cuda); without one, set device: cpu and dtype: float32"
        )
    if not folder.is_dir():
        yield f"checkpoint: {folder} is not a folder on this machine"
        return
    try:
        config = read_config(folder)
        Tokenizer(folder)
        check_tensors(folder, config, NETWORKS)
    except (
        CheckpointUnreadable,
        SpecialTokensMissing,
        TensorsMismatch,
    ) as error:
        yield f"checkpoint: {error}"
        return
    yield from _memory_faults(settings, config)


def position_bytes(config: MiniCPMOConfig, dtype: str) -> int:
    """Return what one position takes: its keys and values in every layer."""
    llm = config.llm
    width = llm.num_key_value_heads * llm.head_dim
    number: torch.dtype = getattr(torch, dtype)
    return llm.num_hidden_layers * 2 * width * number.itemsize


def _memory_faults(settings: MiniCPMOSettings, config: MiniCPMOConfig) -> Iterator[str]:
    own = settings.language_model
    if own.kv_cache_memory_bytes is None:
        return
    one = position_bytes(config, settings.dtype)
    least = own.max_sessions * own.session_tokens * one
    if own.kv_cache_memory_bytes < least:
        yield (
            f"language_model.kv_cache_memory_bytes must be {least} at least: max_sessions x "
            f"session_tokens x {one} bytes a position"
        )
