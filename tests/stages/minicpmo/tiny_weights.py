"""Builds the tiny networks, whose weights follow from their names."""

from collections.abc import Sequence
from typing import Final

import torch

from stages.minicpmo.audio_encoder import AudioEncoder
from stages.minicpmo.audio_state import AudioEncoderSizes
from stages.minicpmo.image_input import ImageSizes
from stages.minicpmo.vision import VisionEncoder, VisionSizes
from stages.minicpmo.weight_rule import make_tensor, rules

CPU: Final = torch.device("cpu")
AUDIO: Final = ("apm.", "audio_projection_layer.")
AUDIO_SIZES: Final = AudioEncoderSizes(
    mel_bands=80,
    hidden=64,
    layers=2,
    heads=2,
    ffn=256,
    positions=1500,
    pool=5,
    llm_hidden=128,
)
VISION: Final = ("vpm.", "resampler.")
VISION_SIZES: Final = VisionSizes(
    hidden=64,
    layers=2,
    heads=2,
    ffn=128,
    grid=70,
    queries=64,
    llm_hidden=128,
    image=ImageSizes(),
)


def tensors(prefixes: Sequence[str]) -> dict[str, torch.Tensor]:
    names = [name for name in rules("model") if name.startswith(tuple(prefixes))]
    return {name: torch.from_numpy(make_tensor("model", name)) for name in names}


def audio_encoder() -> AudioEncoder:
    return AudioEncoder.from_tensors(AUDIO_SIZES, tensors(AUDIO), CPU, torch.float32)


def vision_encoder() -> VisionEncoder:
    return VisionEncoder.from_tensors(VISION_SIZES, tensors(VISION), CPU, torch.float32)
