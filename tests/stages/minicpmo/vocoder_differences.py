"""Prints how far the vocoder's streams are from the recorded ones, as JSON: name to difference.

It is run as a process of its own, because which instructions convolutions use is decided once in a
process.
"""

import json
import sys
from collections.abc import Sequence
from functools import cache

import torch

from stages.minicpmo.vocoder_stream import (
    Noise,
    Sound,
    VocoderCallMel,
    VocoderStream,
    no_noise,
)
from stages.minicpmo.weight_rule import unit_noise
from tests.stages.minicpmo.voice_weights import BANDS, CPU, STREAMS, far, hift, recorded

NOISY = "noisy_steps5"


def recorded_noise(seed: int, call: int, shape: tuple[int, int]) -> torch.Tensor:
    """Return the noise of the recording that has some."""
    del seed
    values = unit_noise(f"noise/hift.normal.{2 * call}", shape[0] * shape[1])
    return torch.from_numpy(values.reshape(shape))


@cache
def sounds(name: str) -> Sequence[Sound]:
    """Return what a stream's recorded mel sounds like."""
    noise: Noise = recorded_noise if name == NOISY else no_noise
    calls = 2 if name == NOISY else 5
    stream = VocoderStream(hift(), BANDS, noise, CPU)
    state, made = stream.begin(7), []
    for number in range(calls):
        mel = torch.from_numpy(recorded()[f"{name}_mel_{number}"])
        (sound,) = stream.run([VocoderCallMel(state, mel, is_last=number == 4)])
        state = sound.state
        made.append(sound)
    return made


def difference(name: str, number: int, sound: Sound) -> float:
    """Return the largest difference; of some streams every fifth sample is recorded."""
    wanted = recorded().get(f"{name}_wave_{number}")
    if wanted is not None:
        return far(sound.wave, wanted)
    return far(sound.wave[::5], recorded()[f"{name}_wave_{number}_every_5th"])


def differences() -> dict[str, float]:
    return {
        name: max(difference(name, number, sound) for number, sound in enumerate(sounds(name)))
        for name in (*STREAMS, NOISY)
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(differences()))
