"""The loaded networks of the hearing and answering half, shared by all sessions."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from session.unit import INPUT_RATE_HZ
from stages.embedded.conversation import Conversation
from stages.embedded.language_model import LanguageModel, Writing
from stages.embedded.prepare import prepare_language_model
from stages.embedded.settings import EmbeddedSettings
from stages.embedded.whisper import Whisper
from stages.vad.silero import SileroVad

_WARM_UP_TOKENS: Final = 4


@dataclass(frozen=True, slots=True)
class Weights:
    """Silero, Whisper and SmolLM2."""

    vad: SileroVad
    whisper: Whisper
    model: LanguageModel


def load_weights(settings: EmbeddedSettings) -> Weights:
    """Load all networks and run each once; converts the language model if it must."""
    folder = prepare_language_model(settings.cache_dir)
    weights = Weights(
        SileroVad.load(),
        Whisper.load(workers=settings.hearing_workers, threads=settings.threads_per_worker),
        LanguageModel.load(
            folder,
            instructions=settings.instructions,
            workers=settings.answering_workers,
            threads=settings.threads_per_worker,
        ),
    )
    _run_once(weights)
    return weights


def _run_once(weights: Weights) -> None:
    """Allocate buffers and compute the shared part of the prompt before the first user comes."""
    second = bytes(2 * INPUT_RATE_HZ)
    weights.vad.score(weights.vad.new_state(), second)
    noise = np.random.default_rng(0).standard_normal(INPUT_RATE_HZ, np.float32) * np.float32(1e-3)
    weights.whisper.transcribe(noise)
    prompt = weights.model.prompt("", Conversation().user_said("Hello."), 0)
    weights.model.write(prompt, Writing(max_tokens=_WARM_UP_TOKENS), lambda _: False)
