"""Flow, vocoder and a voice that are made up: to measure with where there are no weights.

Sizes are the published ones, so times and memory mean something; the sound does not.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import torch

from stages.minicpmo.flow import Flow, draw_noise, take_flow
from stages.minicpmo.flow_sizes import PUBLISHED
from stages.minicpmo.hift import take_hift
from stages.minicpmo.named_tensors import NamedTensors
from stages.minicpmo.talker_unit import CODES_PER_SECOND
from stages.minicpmo.token2wav import NOISE_COLUMNS, Token2Wav, Token2WavSettings, recorder
from stages.minicpmo.vocoder_stream import VocoderStream, batches_on, drawn_noise
from stages.minicpmo.voice_prompt import VoicePrompt
from stages.minicpmo.weight_rule import rules

_SEED: Final = 1


def dummy_token2wav(
    settings: Token2WavSettings, device: torch.device, now_s: Callable[[], float]
) -> Token2Wav:
    """Return networks of the published sizes with random weights, each time the same."""
    source = torch.Generator().manual_seed(_SEED)
    parts = take_flow(PUBLISHED, _RandomTensors(source, device, settings.dtype))
    noise = draw_noise(PUBLISHED.bands, NOISE_COLUMNS, settings.seed)
    flow = Flow(PUBLISHED, parts, settings.steps, noise)
    hift = take_hift(
        {
            name: torch.randn(rule.shape, generator=source) * rule.std + rule.mean
            for name, rule in rules("hift").items()
        },
        device,
    )
    batches = batches_on(device, settings.max_batch)
    vocoder = VocoderStream(hift, PUBLISHED.bands, drawn_noise(device), device, batches)
    return Token2Wav(flow, vocoder, settings, now_s, recorder(settings, device))


def dummy_prompt(seconds: float) -> VoicePrompt:
    """Return a voice of so many seconds that nobody has."""
    generator = np.random.default_rng(_SEED)
    codes = round(seconds * CODES_PER_SECOND)
    mel = generator.standard_normal((2 * codes, PUBLISHED.bands)).astype(np.float32)
    speaker = generator.standard_normal(PUBLISHED.speaker).astype(np.float32)
    return VoicePrompt(tuple(range(codes)), mel, speaker)


class _RandomTensors(NamedTensors):
    """Makes up whatever a network asks for."""

    def __init__(self, source: torch.Generator, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__({}, device, dtype)
        self._source = source
        self._where = device, dtype

    def take(self, name: str, shape: Sequence[int]) -> torch.Tensor:
        """Return noise that keeps what passes through it at about its size."""
        del name
        noise = torch.randn(tuple(shape), generator=self._source) / math.sqrt(math.prod(shape[1:]))
        return noise.to(*self._where)
