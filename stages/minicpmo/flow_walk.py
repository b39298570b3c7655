"""The walk of a batch from noise to mel, of nothing but tensors.

Rule 1: mel is found in steps of Euler's method, at times 1 - cos(pi/2 i/n). The direction is 1.7
        times that with a condition less 0.7 times that without (mu, speaker and voice are 0).
        (Vectors, section 7.)
Rule 2: the walk itself is in float32 whatever the network's precision is.
Rule 3: what it does depends on shapes alone, never on values: it can be recorded once and played
        again (`stages.minicpmo.flow_graphs`).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch

from stages.minicpmo.flow_estimator import Estimator, EstimatorPast, Filled

GUIDANCE: Final = 0.7
"""How much further than the conditioned direction a step goes, away from the other."""


@dataclass(frozen=True, slots=True, eq=False)
class Walked:
    """What a walk yields. Rows of one turn lie side by side: with the condition, then without."""

    mel: torch.Tensor
    """float32 [batch, frames, bands]"""
    attention: torch.Tensor
    """[steps, depth, 2 * batch, heads, frames, 2 * head size] New keys and values."""
    convolutions: torch.Tensor
    """[steps, depth, 2 * batch, 2 * wide, 2]"""


class Walk:
    """The estimator at the times of a walk."""

    def __init__(self, estimator: Estimator, steps: int) -> None:
        self.steps = steps
        self._estimator = estimator
        # In float32, as published: a time is taken times 1000, which shows the last digit.
        way = 1 - torch.cos(torch.linspace(0, 1, steps + 1) * (math.pi / 2))
        self._way = [float(time) for time in way]
        with torch.inference_mode():
            self._times = estimator.at_times(self._way[:-1])

    def __call__(
        self,
        noise: torch.Tensor,
        known: torch.Tensor,
        past: Callable[[int], EstimatorPast],
        filled: Filled,
    ) -> Walked:
        """Walk from noise [batch, frames, bands] with what is known [batch, frames, 3 * bands].

        `past` gives what the batch remembers of a step; it is asked for one step at a time.
        """
        x = noise
        both = torch.stack([known, torch.zeros_like(known)], 1).flatten(0, 1)
        attention, convolutions = [], []
        for step in range(self.steps):
            rows = torch.cat([x.to(known.dtype).repeat_interleave(2, 0), both], -1)
            way = self._estimator(rows, self._times, step, past(step), filled)
            attention.append(way.attention)
            convolutions.append(way.convolutions)
            with_it, without = torch.unflatten(way.mel.float(), 0, (-1, 2)).unbind(1)
            length = self._way[step + 1] - self._way[step]
            x = x + length * ((1 + GUIDANCE) * with_it - GUIDANCE * without)
        return Walked(x, torch.stack(attention), torch.stack(convolutions))


def hiding_bias(seen: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return [2 * batch, 1, 1, keys], a `Filled.bias`, for [batch, keys]: True where a key counts.

    Each turn needs one key that counts.
    """
    bias = torch.zeros(seen.shape, device=seen.device, dtype=dtype)
    bias.masked_fill_(~seen, -math.inf)
    return bias.repeat_interleave(2, 0)[:, None, None]
