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
from stages.minicpmo.config import MiniCPMOConfig, TtsConfig, read_config
from stages.minicpmo.loading import DUMMY
from stages.minicpmo.loading_voice import max_sessions, turn_tokens, voice_folder
from stages.minicpmo.settings import MiniCPMOSettings
from stages.minicpmo.special_tokens import SpecialTokensMissing
from stages.minicpmo.talker_condition import TalkerUnsupported, require_followed
from stages.minicpmo.tokenizer import Tokenizer
from stages.minicpmo.voice_files import FLOW_FILE, HIFT_FILE, refuse_later_layout
from stages.minicpmo.voice_prompts import prompts_of

NETWORKS: Final = ("llm", "apm", "audio_projection_layer", "vpm", "resampler", "tts")
_LEAST_BYTES: Final = 4096
"""What a file of tensors has at least; what stands for one that was not fetched has less."""


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
        require_followed(config.tts)
    except (
        CheckpointUnreadable,
        SpecialTokensMissing,
        TalkerUnsupported,
        TensorsMismatch,
    ) as error:
        yield f"checkpoint: {error}"
        return
    yield from _memory_faults(settings, config)
    if settings.talker.load_format != DUMMY:
        yield from _voice_faults(settings, voice_folder(settings, folder))


def position_bytes(config: MiniCPMOConfig, dtype: str) -> int:
    """Return what one position of the language model takes: keys and values in every layer."""
    llm = config.llm
    return _position(llm.num_hidden_layers, llm.num_key_value_heads, llm.head_dim, dtype)


def talker_position_bytes(tts: TtsConfig, dtype: str) -> int:
    """Return what one position of the talker takes."""
    head_dim = tts.hidden_size // tts.num_attention_heads
    return _position(tts.num_hidden_layers, tts.num_key_value_heads, head_dim, dtype)


def _position(layers: int, heads: int, head_dim: int, dtype: str) -> int:
    number: torch.dtype = getattr(torch, dtype)
    return layers * 2 * heads * head_dim * number.itemsize


def _memory_faults(settings: MiniCPMOSettings, config: MiniCPMOConfig) -> Iterator[str]:
    own, talker = settings.language_model, settings.talker
    one = position_bytes(config, settings.dtype)
    if own.kv_cache_memory_bytes is not None:
        least = own.max_sessions * own.session_tokens * one
        yield from _too_few("language_model", own.kv_cache_memory_bytes, least, one)
    one = talker_position_bytes(config.tts, settings.dtype)
    if talker.kv_cache_memory_bytes is not None:
        least = max_sessions(settings) * turn_tokens(settings, config.tts) * one
        yield from _too_few("talker", talker.kv_cache_memory_bytes, least, one)


def _too_few(engine: str, given: int, least: int, one: int) -> Iterator[str]:
    if given < least:
        yield (
            f"{engine}.kv_cache_memory_bytes must be {least} at least: max_sessions x "
            f"session_tokens x {one} bytes a position"
        )


def _voice_faults(settings: MiniCPMOSettings, folder: Path) -> Iterator[str]:
    """Yield what is wrong with the voice's folder, and with the voice that all begin with."""
    own = settings.voice
    if not folder.is_dir():
        yield f"voice.folder: {folder} is not a folder on this machine"
        return
    missing = [name for name in (FLOW_FILE, HIFT_FILE) if not (folder / name).is_file()]
    if missing:
        yield f"voice.folder: {folder} lacks {' and '.join(missing)}"
    for file in (folder / FLOW_FILE, folder / HIFT_FILE):
        if file.is_file() and file.stat().st_size < _LEAST_BYTES:
            yield (
                f"voice.folder: {file} has {file.stat().st_size} bytes, which is no file of "
                "tensors: a placeholder of git-lfs?"
            )
    try:
        refuse_later_layout(folder)
        prompts = prompts_of(own.prompt, folder, seconds=own.prompt_s, kept=1)
    except CheckpointUnreadable as error:
        yield f"voice: {error}"
        return
    prompts.close()
