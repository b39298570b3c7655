"""Loads MiniCPM-o: checkpoint, engine, encoders. Imported where the model runs, and only there.

Rule 1: the engine comes first. Its processes may be forked, and a fork after torch has worked on
        the CPU hangs.
Rule 2: tensors are loaded by name. The language model's are read by vLLM's own loader through our
        model class, everything else here.
"""

import asyncio
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

import torch

from session.errors import UnsupportedOption
from stages.engine.engine import ResumableEngine
from stages.engine.settings import SPARE_SLOTS, EngineSettings
from stages.engine.values import Embeddings
from stages.engine.vllm_backend import VllmBackend
from stages.minicpmo.audio_encoder import AudioEncoder
from stages.minicpmo.audio_state import AudioEncoderSizes
from stages.minicpmo.checkpoint import load_tensors
from stages.minicpmo.config import MiniCPMOConfig, read_config
from stages.minicpmo.ear import EncoderEar
from stages.minicpmo.layout import RowCounts
from stages.minicpmo.loaded import Loaded
from stages.minicpmo.settings import (
    CHECKPOINT_VARIABLE,
    TINY,
    MiniCPMOSettings,
    OwnEngineSettings,
    VoiceSettings,
    WindowSettings,
)
from stages.minicpmo.tap import TapReceiver
from stages.minicpmo.tensor_shapes import expected_tensors
from stages.minicpmo.tiny_checkpoint import write_tiny_checkpoint
from stages.minicpmo.tokenizer import Tokenizer
from stages.minicpmo.unit_model import EngineUnitModel
from stages.minicpmo.vision import VisionEncoder, VisionSizes
from stages.minicpmo.vllm_args import EngineFields, engine_fields
from stages.minicpmo.voice_pcm import used_of_recording
from stages.minicpmo.voice_prompts import read_recording
from stages.minicpmo.windows import MARKER_TEXT, BasicWindow, ContextWindow, Window, WindowOff
from stages.prepared_folder import cache_root

EARS: Final = ("apm", "audio_projection_layer")
EYES: Final = ("vpm", "resampler")
DUMMY: Final = "dummy"
MOST_ITEM_ROWS: Final = 512
"""Longer embeddings are fed as several items."""
_RANDOM_SCALE: Final = 0.02


async def load(settings: MiniCPMOSettings) -> Loaded:
    """Start the engine and load the encoders; takes a minute or more for the real model.

    Raises ValueErrors that name the file, the field or the tensor, and EngineFailed.
    """
    folder = await asyncio.to_thread(checkpoint_folder, settings)
    config, tokenizer = read_config(folder), Tokenizer(folder)
    engine = ResumableEngine(
        args := engine_settings(settings, folder), VllmBackend(args, time.monotonic), time.monotonic
    )
    await engine.start()
    tap = TapReceiver()
    try:
        await tap.start()
        await engine.call_worker("tap_open", tap.address)
        ear = await asyncio.to_thread(load_ear, settings, folder, config)
        await ear.warm_up()
        own_voice = await load_own_voice(settings, ear)
    except BaseException:
        await engine.stop()
        await tap.close()
        raise
    return Loaded(
        ear=ear,
        language=EngineUnitModel(engine, tap, tokenizer.specials),
        tokenizer=tokenizer,
        counts=RowCounts.from_config(
            audio_pool_step=config.audio_pool_step, query_num=config.query_num
        ),
        window=window(settings.window, tokenizer),
        own_voice=own_voice,
    )


def checkpoint_folder(settings: MiniCPMOSettings) -> Path:
    """Return the checkpoint's folder; the tiny one is written if it is not there."""
    named = settings.checkpoint or os.environ.get(CHECKPOINT_VARIABLE)
    if not named:
        raise ValueError(
            "no checkpoint: name its folder in model_settings.checkpoint or in "
            f"{CHECKPOINT_VARIABLE}"
        )
    if named != TINY:
        return Path(named).expanduser()
    folder = cache_root() / "minicpmo-tiny"
    write_tiny_checkpoint(folder)
    return folder


def engine_settings(settings: MiniCPMOSettings, folder: Path) -> EngineSettings:
    """Return what the engine is built from."""
    own = settings.language_model
    fields = engine_fields(is_v2_runner=is_v2_runner(settings))
    fields["more_engine_args"] = {
        **fields["more_engine_args"],
        # A long memory that is fed again leaves most of each step to the others.
        "long_prefill_token_threshold": max(64, own.max_num_batched_tokens // 4),
    }
    built = engine_of(
        own,
        settings,
        folder,
        sessions=own.max_sessions,
        tokens=own.session_tokens,
        fields=fields,
    )
    return replace(built, enable_prefix_caching=own.enable_prefix_caching)


def engine_of(
    own: OwnEngineSettings,
    settings: MiniCPMOSettings,
    folder: Path,
    *,
    sessions: int,
    tokens: int,
    fields: EngineFields,
) -> EngineSettings:
    """Return what an engine with room for `sessions` of `tokens` positions each is built from.

    `fields` are those of EngineSettings that only its model has.
    """
    return EngineSettings(
        model=folder,
        tokenizer=folder,
        dtype=settings.dtype,
        max_model_len=tokens,
        session_tokens=tokens,
        max_sessions=sessions,
        max_in_flight=own.max_units_in_engine or sessions,
        max_num_seqs=sessions + SPARE_SLOTS,
        max_num_batched_tokens=own.max_num_batched_tokens,
        stuck_after_s=own.stuck_after_s,
        kv_cache_memory_bytes=own.kv_cache_memory_bytes,
        gpu_memory_utilization=own.gpu_memory_utilization,
        enforce_eager=own.enforce_eager,
        cudagraph_mode=own.cudagraph_mode,
        load_format=own.load_format,
        reports_to_ray=own.metrics,
        max_item_rows=min(MOST_ITEM_ROWS, own.max_num_batched_tokens),
        **fields,
    )


def is_v2_runner(settings: MiniCPMOSettings) -> bool:
    """Tell whether vLLM will take its V2 model runner."""
    return settings.device == "cuda" and os.environ.get("VLLM_USE_V2_MODEL_RUNNER", "1") != "0"


def load_ear(settings: MiniCPMOSettings, folder: Path, config: MiniCPMOConfig) -> EncoderEar:
    """Load the audio and the picture encoder."""
    device, dtype = torch.device(settings.device), getattr(torch, settings.dtype)
    is_dummy = settings.language_model.load_format == DUMMY

    def tensors(prefixes: tuple[str, ...]) -> dict[str, torch.Tensor]:
        if is_dummy:
            return random_tensors(config, prefixes, device, dtype)
        return load_tensors(folder, config, prefixes)

    audio = AudioEncoder.from_tensors(AudioEncoderSizes.of(config), tensors(EARS), device, dtype)
    vision = VisionEncoder.from_tensors(VisionSizes.of(config), tensors(EYES), device, dtype)
    return EncoderEar(audio, vision, batch=settings.encoder_batch)


async def load_own_voice(settings: MiniCPMOSettings, ear: EncoderEar) -> Embeddings | None:
    """Return the operator's recording as the model hears it; None if there is none.

    Raises CheckpointUnreadable, or another ValueError; both name the setting.
    """
    pcm = await asyncio.to_thread(_own_recording, settings.voice)
    if pcm is None:
        return None
    try:
        return await ear.learn_voice(pcm)
    except UnsupportedOption as error:
        raise ValueError(
            f"model_settings.voice.prompt: {settings.voice.prompt}: {error.message}"
        ) from error


def _own_recording(voice: VoiceSettings) -> bytes | None:
    """Return what is used of the operator's recording, PCM at VOICE_RATE_HZ."""
    if voice.prompt is None or not voice.prompt.lower().endswith(".wav"):
        return None
    pcm = read_recording(Path(voice.prompt).expanduser())
    return used_of_recording(pcm, voice.prompt_s)


def random_tensors(
    config: MiniCPMOConfig, prefixes: tuple[str, ...], device: torch.device, dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    """Return made-up tensors of the config's shapes, to measure with where there are no weights."""
    source = torch.Generator(device).manual_seed(0)
    return {
        name: _RANDOM_SCALE * torch.randn(shape, generator=source, device=device, dtype=dtype)
        for name, shape in expected_tensors(config, prefixes).shapes.items()
    }


def window(settings: WindowSettings, tokenizer: Tokenizer) -> Window:
    """Return the window as the rules have it."""
    match settings.mode:
        case "off":
            return WindowOff()
        case "basic":
            return BasicWindow(high=settings.high, low=settings.low)
        case "context":
            marker = tokenizer.encode(MARKER_TEXT)
            return ContextWindow(
                settings.units, settings.carried_tokens, marker, slack=settings.slack_units
            )
