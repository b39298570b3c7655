"""Loads MiniCPM-o's voice: the talker's engine, its condition, flow and vocoder, the voices.

Rule 1: the engine comes first, as in `stages.minicpmo.loading`.
Rule 2: of the checkpoint only the two networks of the condition are read here. vLLM reads the
        talker's own tensors, and the voice's lie in a folder of their own.
Rule 3: what sessions will need is counted before the first one opens, and on a GPU compared with
        what is free there.
"""

import asyncio
import time
from pathlib import Path
from typing import Final

import torch

from stages.engine.engine import ResumableEngine
from stages.engine.settings import EngineSettings
from stages.engine.vllm_backend import VllmBackend
from stages.minicpmo.checkpoint import load_tensors
from stages.minicpmo.config import MiniCPMOConfig, TtsConfig, read_config
from stages.minicpmo.dummy_voice import dummy_prompt, dummy_token2wav
from stages.minicpmo.loaded_voice import LoadedVoice
from stages.minicpmo.loading import (
    DUMMY,
    checkpoint_folder,
    engine_of,
    is_v2_runner,
    random_tensors,
)
from stages.minicpmo.settings import TINY, MiniCPMOSettings
from stages.minicpmo.talker import Talker, TalkerSetup
from stages.minicpmo.talker_args import talker_engine_fields
from stages.minicpmo.talker_condition import TalkerCondition
from stages.minicpmo.talker_policy import PUBLISHED_TALKER
from stages.minicpmo.talker_unit import SERVING_RULES
from stages.minicpmo.tiny_voice import tiny_voice_folder
from stages.minicpmo.token2wav import Token2Wav, Token2WavSettings
from stages.minicpmo.voice_desk import VoiceDesk
from stages.minicpmo.voice_memory import (
    FRAMES_PER_SECOND,
    VoiceMemory,
    VoiceSizes,
    shared_bytes,
)
from stages.minicpmo.voice_prompt import NamedPrompt, Prompts
from stages.minicpmo.voice_prompts import VoicePrompts, prompts_of
from stages.prepared_folder import cache_root

CONDITION: Final = ("tts.emb_text", "tts.projector_semantic")
VOICE_FOLDER: Final = Path("assets", "token2wav")
"""Within the published checkpoint."""


async def load_voice(settings: MiniCPMOSettings) -> LoadedVoice:
    """Start the talker's engine and load the rest; takes a minute or so for the real model.

    Raises ValueErrors that name the file, the field, the tensor or the setting, and EngineFailed.
    """
    folder = await asyncio.to_thread(checkpoint_folder, settings)
    config = read_config(folder)
    setup = talker_setup(settings, config.tts)
    args = talker_engine_settings(settings, folder, config.tts)
    engine = ResumableEngine(args, VllmBackend(args, time.monotonic), time.monotonic)
    await engine.start()
    try:
        condition = await asyncio.to_thread(load_condition, settings, folder, config)
        talker = Talker(engine, condition, setup)
        return await asyncio.to_thread(load_sound, settings, folder, talker)
    except BaseException:
        await engine.stop()
        raise


def talker_setup(settings: MiniCPMOSettings, tts: TtsConfig) -> TalkerSetup:
    """Return what all units are spoken with. Raises TalkerUnsupported."""
    tokens = settings.talker.session_tokens
    return TalkerSetup.of(tts, SERVING_RULES, PUBLISHED_TALKER, session_tokens=tokens)


def load_sound(settings: MiniCPMOSettings, folder: Path, talker: Talker) -> LoadedVoice:
    """Load flow, vocoder and voices beside a talker that is there."""
    prompts, voices = load_prompts(settings, folder), load_token2wav(settings, folder)
    return LoadedVoice(
        talker=talker,
        desk=VoiceDesk(voices, batch=_batch(settings)),
        prompts=prompts,
        memory=voice_memory(settings, voices, prompts.own),
    )


def max_sessions(settings: MiniCPMOSettings) -> int:
    """Return how many sessions the talker reserves memory for."""
    return settings.talker.max_sessions or settings.language_model.max_sessions


def turn_tokens(settings: MiniCPMOSettings, tts: TtsConfig) -> int:
    """Return the positions that a turn may take."""
    return min(settings.talker.session_tokens, tts.max_position_embeddings)


def voice_folder(settings: MiniCPMOSettings, checkpoint: Path) -> Path:
    """Return the folder of flow and vocoder; the tiny one is written if it is not there."""
    if settings.voice.folder is not None:
        return Path(settings.voice.folder).expanduser()
    if settings.checkpoint == TINY:
        return tiny_voice_folder(cache_root())
    return checkpoint / VOICE_FOLDER


def talker_engine_settings(
    settings: MiniCPMOSettings, folder: Path, tts: TtsConfig
) -> EngineSettings:
    """Return what the talker's engine is built from."""
    return engine_of(
        settings.talker,
        settings,
        folder,
        sessions=max_sessions(settings),
        tokens=turn_tokens(settings, tts),
        fields=talker_engine_fields(tts, is_v2_runner=is_v2_runner(settings)),
    )


def load_condition(
    settings: MiniCPMOSettings, folder: Path, config: MiniCPMOConfig
) -> TalkerCondition:
    """Load what makes the talker's conditions.

    On the CPU, on any machine: it is a few rows a second, and what a GPU computes for them would
    have to wait for the flow's long lines of work there.
    """
    device, dtype = torch.device("cpu"), getattr(torch, settings.dtype)
    if settings.talker.load_format == DUMMY:
        tensors = random_tensors(config, CONDITION, device, dtype)
    else:
        tensors = load_tensors(folder, config, CONDITION)
    return TalkerCondition.from_tensors(config.tts, tensors, device, dtype)


def load_token2wav(settings: MiniCPMOSettings, folder: Path) -> Token2Wav:
    """Load flow and vocoder."""
    own, device = settings.voice, torch.device(settings.device)
    how = Token2WavSettings(
        steps=own.steps,
        dtype=getattr(torch, own.dtype),
        max_batch=_batch(settings),
        max_voices=own.max_voices,
        seed=own.seed,
        graph_frames=round(own.prompt_s * FRAMES_PER_SECOND) if own.cuda_graphs else 0,
    )
    if settings.talker.load_format == DUMMY:
        return dummy_token2wav(how, device, time.monotonic)
    return Token2Wav.from_folder(voice_folder(settings, folder), how, device, time.monotonic)


def load_prompts(settings: MiniCPMOSettings, folder: Path) -> Prompts:
    """Return where voices come from."""
    if settings.talker.load_format == DUMMY:
        dummy = NamedPrompt("dummy", dummy_prompt(settings.voice.prompt_s))
        return VoicePrompts(dummy, None, kept=1)
    own = settings.voice
    return prompts_of(
        own.prompt, voice_folder(settings, folder), seconds=own.prompt_s, kept=own.max_voices
    )


def voice_memory(settings: MiniCPMOSettings, voices: Token2Wav, own: NamedPrompt) -> VoiceMemory:
    """Return the account of memory for sound.

    Raises ValueError, which names the setting, if it is less than one session needs, or more than
    the GPU has left.
    """
    given, sessions = settings.voice.memory_bytes, max_sessions(settings)
    sizes = VoiceSizes(voices.turn_bytes, voices.voice_bytes)
    frames = max(len(own.prompt.mel), round(settings.voice.prompt_s * FRAMES_PER_SECOND))
    batch, kept = _batch(settings), settings.voice.max_voices
    shared = shared_bytes(sizes, max_batch=batch, max_voices=kept, frames=frames)
    shared += voices.graph_bytes(frames)
    # Each session may bring a voice of its own.
    one = sizes.turn_bytes(frames) + sizes.voice_bytes(frames)
    whole = given or sessions * one + shared
    if whole < shared + one:
        raise ValueError(
            f"model_settings.voice.memory_bytes must be {shared + one} at least: {shared} bytes "
            f"that all sessions share, and {one} for one of them"
        )
    if settings.device == "cuda":
        _require_free(whole, torch.cuda.mem_get_info()[0], sessions)
    return VoiceMemory(whole - shared, sizes)


def _require_free(needed: int, free: int, sessions: int) -> None:
    if needed > free:
        raise ValueError(
            f"the sound of {sessions} sessions needs {needed} bytes of the GPU's memory, and "
            f"{free} are free: lower model_settings.voice.memory_bytes, talker.max_sessions, "
            "voice.max_batch or voice.prompt_s, or what else is on this GPU, or set "
            "voice.cuda_graphs to false"
        )


def _batch(settings: MiniCPMOSettings) -> int:
    """Return how many calls may be due together, which is never more than there are sessions."""
    return min(settings.voice.max_batch, max_sessions(settings))
