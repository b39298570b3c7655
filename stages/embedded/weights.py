"""Loads the networks of the hearing and answering half."""

from typing import Final

import numpy as np

from session.unit import INPUT_RATE_HZ, SAMPLE_BYTES
from stages.embedded.conversation import Conversation
from stages.embedded.language_model import LanguageModel
from stages.embedded.ports import Networks, Writing
from stages.embedded.prepare import prepare_language_model
from stages.embedded.settings import EmbeddedSettings
from stages.embedded.whisper import Whisper
from stages.vad.silero import SileroVad

_WARM_UP_TOKENS: Final = 4


def load_networks(settings: EmbeddedSettings) -> Networks:
    """Load Silero, Whisper and SmolLM2 and run each once; converts SmolLM2 first if it must."""
    folder = prepare_language_model(settings.cache_dir)
    vad = SileroVad.load()
    whisper = Whisper.load(workers=settings.hearing_workers, threads=settings.threads_per_worker)
    model = LanguageModel.load(
        folder,
        instructions=settings.instructions,
        workers=settings.answering_workers,
        threads=settings.threads_per_worker,
    )
    # Allocate buffers, and compute the shared part of the prompt, before the first user comes.
    vad.score(vad.new_state(), bytes(INPUT_RATE_HZ * SAMPLE_BYTES))
    noise = np.random.default_rng(0).standard_normal(INPUT_RATE_HZ, np.float32)
    whisper.transcribe(noise * np.float32(1e-3))
    prompt = model.prompt("", Conversation().user_said("Hello."), 0)
    model.write(prompt, Writing(max_tokens=_WARM_UP_TOKENS), lambda _: False)
    return Networks(vad, whisper, model)
