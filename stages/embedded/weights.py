"""Loads the networks of the hearing and answering half."""

from typing import Final

import numpy as np

from session.unit import INPUT_RATE_HZ, SAMPLE_BYTES
from stages.embedded.conversation import Conversation
from stages.embedded.language_model import LanguageModel
from stages.embedded.ports import Networks, TextModel, Writing
from stages.embedded.prepare import prepare_language_model
from stages.embedded.settings import EmbeddedSettings, Engine
from stages.embedded.whisper import Whisper
from stages.vad.silero import SileroVad

_WARM_UP_TOKENS: Final = 4
_WARM_UP: Final = "warm-up"


def load_networks(settings: EmbeddedSettings) -> Networks:
    """Load Silero, Whisper and SmolLM2 and run each once; converts SmolLM2 first if it must."""
    vad = SileroVad.load()
    whisper = Whisper.load(workers=settings.hearing_workers, threads=settings.threads_per_worker)
    model = load_language_model(settings)
    # Allocate buffers, and compute the shared part of the prompt, before the first user comes.
    vad.score(vad.new_state(), bytes(INPUT_RATE_HZ * SAMPLE_BYTES))
    noise = np.random.default_rng(0).standard_normal(INPUT_RATE_HZ, np.float32)
    whisper.transcribe(noise * np.float32(1e-3))
    prompt = model.prompt("", Conversation().user_said("Hello."), 0)
    model.write(prompt, Writing(_WARM_UP_TOKENS, memory=_WARM_UP), lambda _: False)
    model.forget(_WARM_UP)
    return Networks(vad, whisper, model)


def load_language_model(settings: EmbeddedSettings) -> TextModel:
    """Load SmolLM2 on the chosen engine; converts it first if it must."""
    folder = prepare_language_model(settings.cache_dir, engine=settings.engine)
    if settings.engine is Engine.VLLM:
        # torch and vLLM are installed only where this engine is chosen.
        from stages.embedded.vllm_language_model import VllmLanguageModel  # noqa: PLC0415

        return VllmLanguageModel.load(
            folder,
            instructions=settings.instructions,
            memories=max(settings.kept_conversations, settings.answering_workers),
        )
    return LanguageModel.load(
        folder,
        instructions=settings.instructions,
        workers=settings.answering_workers,
        threads=settings.threads_per_worker,
    )
