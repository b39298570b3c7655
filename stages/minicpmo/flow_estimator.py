"""The estimator's arithmetic: in which direction a noisy mel has to go at one time of its way.

1. It is a stack of blocks that see mel frames without positions: attention does not know in which
   order keys stand, so a batch is filled up behind, and a bias hides what was filled up.
2. Convolutions look back only. So a call's own frames can be filled up behind too: who does says
   which columns the next call begins with.
3. A time decides how each block scales, shifts and gates. Times are few and known, so that is
   computed once.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
import torch.nn.functional as F

from stages.minicpmo.flow_sizes import CONTEXT_COLUMNS, FlowSizes
from stages.minicpmo.named_tensors import Linear, NamedTensors, Norm, joined, split_heads

_EPSILON: Final = 1e-5
_PLAIN_EPSILON: Final = 1e-6
_TIME_SCALE: Final = 1000
_SLOWEST: Final = 10_000.0
_PARTS: Final = 9
"""Shift, scale and gate, of attention, of the two linear layers and of the convolutions."""


@dataclass(frozen=True, slots=True, eq=False)
class EstimatorPast:
    """What a batch remembers of one time; a row is with or without condition."""

    attention: torch.Tensor
    """[depth, rows, heads, frames, 2 * head size], filled up behind."""
    convolutions: torch.Tensor
    """[depth, rows, 2 * wide, 2]"""


@dataclass(frozen=True, slots=True, eq=False)
class Filled:
    """Which of a batch's frames are there to fill it up; None says: none."""

    bias: torch.Tensor | None
    """[rows, 1, 1, new + past frames] Added to what attention sees: 0, or -inf for what was filled
    up. Keys of the call itself come first."""
    ends: torch.Tensor | None
    """[2] Columns that convolutions keep, counted from the first that they kept before."""


@dataclass(frozen=True, slots=True, eq=False)
class Direction:
    """What one time of a call yields."""

    mel: torch.Tensor
    """[rows, frames, bands]"""
    attention: torch.Tensor
    """[depth, rows, heads, frames, 2 * head size] New keys and values."""
    convolutions: torch.Tensor
    """[depth, rows, 2 * wide, 2]"""


@dataclass(frozen=True, slots=True, eq=False)
class EstimatorBlock:
    """Attention, convolutions and two linear layers, each of which a time shifts and gates."""

    heads: int
    query_key_value: Linear
    query_norm: Norm
    key_norm: Norm
    out: Linear
    ffn_in: Linear
    ffn_out: Linear
    convolutions: tuple[Linear, Linear]
    """Over three frames side by side, the earliest first."""
    convolution_norm: Norm
    time: Linear

    def attend(
        self, x: torch.Tensor, past: torch.Tensor, bias: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what attention adds to x [rows, frames, wide], and the new keys and values."""
        queries, keys, values = (
            split_heads(part, self.heads) for part in self.query_key_value(x).chunk(3, dim=-1)
        )
        new = torch.cat([self.key_norm(keys), values], -1)
        keys, values = torch.cat([new, past], 2).chunk(2, -1)
        mixed = F.scaled_dot_product_attention(self.query_norm(queries), keys, values, bias)
        return self.out(mixed.transpose(1, 2).flatten(2)), new

    def convolve(
        self, x: torch.Tensor, past: torch.Tensor, ends: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what the convolutions add, and the columns that they keep."""
        before_first, before_second = past.transpose(1, 2).chunk(2, 2)
        first = torch.cat([before_first, x], 1)
        x = F.mish(self.convolution_norm(_convolved(first, self.convolutions[0])))
        second = torch.cat([before_second, x], 1)
        x = _convolved(second, self.convolutions[1])
        kept = [
            one[:, -CONTEXT_COLUMNS:] if ends is None else one.index_select(1, ends)
            for one in (first, second)
        ]
        return x, torch.cat(kept, 2).transpose(1, 2)


@dataclass(frozen=True, slots=True, eq=False)
class Times:
    """What the times of a way make of the blocks; computed once."""

    blocks: torch.Tensor
    """[times, depth, 9, wide] A scale with the 1 that it is told less."""
    last: torch.Tensor
    """[times, 2, wide] The same."""


@dataclass(frozen=True, slots=True, eq=False)
class Estimator:
    """The whole network."""

    enter: Linear
    blocks: tuple[EstimatorBlock, ...]
    last_time: Linear
    leave: Linear
    time: tuple[Linear, Linear]
    frequencies: int

    def at_times(self, times: Sequence[float]) -> Times:
        """Return what these times, 0 to 1, make of the network."""
        weight = self.time[0].weight
        half = self.frequencies // 2
        speeds = torch.exp(-math.log(_SLOWEST) * torch.arange(half, device=weight.device) / half)
        at = torch.tensor(times, dtype=torch.float32, device=weight.device)
        angles = at[:, None] * _TIME_SCALE * speeds
        waves = torch.cat([angles.cos(), angles.sin()], -1).to(weight.dtype)
        known = F.silu(self.time[1](F.silu(self.time[0](waves))))
        each = [torch.unflatten(block.time(known), -1, (_PARTS, -1)) for block in self.blocks]
        blocks, last = torch.stack(each, 1), torch.unflatten(self.last_time(known), -1, (2, -1))
        blocks[:, :, 1::3] += 1
        last[:, 1] += 1
        return Times(blocks, last)

    def __call__(
        self, x: torch.Tensor, times: Times, step: int, past: EstimatorPast, filled: Filled
    ) -> Direction:
        """Return where x [rows, frames, 4 * bands] has to go at time number `step`."""
        x = self.enter(x)
        attention, convolutions = [], []
        for number, block in enumerate(self.blocks):
            parts = times.blocks[step, number]
            mixed, new = block.attend(
                _moved(x, parts[0], parts[1]), past.attention[number], filled.bias
            )
            attention.append(new)
            x = torch.addcmul(x, parts[2], mixed)
            mixed, new = block.convolve(
                _moved(x, parts[6], parts[7]), past.convolutions[number], filled.ends
            )
            convolutions.append(new)
            x = torch.addcmul(x, parts[8], mixed)
            inner = F.gelu(block.ffn_in(_moved(x, parts[3], parts[4])), approximate="tanh")
            x = torch.addcmul(x, parts[5], block.ffn_out(inner))
        mel = self.leave(_moved(x, *times.last[step]))
        return Direction(mel, torch.stack(attention), torch.stack(convolutions))


def take_estimator(sizes: FlowSizes, tensors: NamedTensors) -> Estimator:
    """Return the network of these weights; raise WrongTensors if one lacks or does not fit."""
    name, wide = "decoder.estimator", sizes.wide
    return Estimator(
        # The mel itself, the conformer's, the speaker's and that of the voice.
        enter=tensors.linear(f"{name}.in_proj", wide, 4 * sizes.bands),
        blocks=tuple(_block(sizes, tensors, f"{name}.blocks.{i}") for i in range(sizes.depth)),
        last_time=tensors.linear(f"{name}.final_layer.adaLN_modulation.1", 2 * wide, wide),
        leave=tensors.linear(f"{name}.final_layer.linear", sizes.bands, wide),
        time=(
            tensors.linear(f"{name}.t_embedder.mlp.0", wide, sizes.frequencies),
            tensors.linear(f"{name}.t_embedder.mlp.2", wide, wide),
        ),
        frequencies=sizes.frequencies,
    )


def _block(sizes: FlowSizes, tensors: NamedTensors, name: str) -> EstimatorBlock:
    wide, inner = sizes.wide, sizes.wide_heads * sizes.head_size

    def convolution(place: int) -> Linear:
        named = f"{name}.conv.block.{place}"
        weight = tensors.take(f"{named}.weight", (wide, wide, CONTEXT_COLUMNS + 1))
        bias = tensors.take(f"{named}.bias", (wide,))
        return Linear(weight.transpose(1, 2).flatten(1), bias)

    return EstimatorBlock(
        heads=sizes.wide_heads,
        query_key_value=joined(
            [tensors.linear(f"{name}.attn.to_{one}", inner, wide) for one in "qkv"]
        ),
        query_norm=tensors.norm(f"{name}.attn.q_norm", sizes.head_size, _EPSILON),
        key_norm=tensors.norm(f"{name}.attn.k_norm", sizes.head_size, _EPSILON),
        out=tensors.linear(f"{name}.attn.proj", wide, inner),
        ffn_in=tensors.linear(f"{name}.mlp.fc1", sizes.wide_ffn, wide),
        ffn_out=tensors.linear(f"{name}.mlp.fc2", wide, sizes.wide_ffn),
        convolutions=(convolution(1), convolution(6)),
        convolution_norm=tensors.norm(f"{name}.conv.block.3", wide, _EPSILON),
        time=tensors.linear(f"{name}.adaLN_modulation.1", _PARTS * wide, wide),
    )


def _convolved(x: torch.Tensor, weights: Linear) -> torch.Tensor:
    """Return [rows, frames, wide] for two frames more.

    A linear layer, because a GPU's convolutions turn frames and channels round before and after.
    """
    frames = x.shape[1] - CONTEXT_COLUMNS
    windows = [x[:, start : start + frames] for start in range(CONTEXT_COLUMNS + 1)]
    return weights(torch.cat(windows, 2))


def _moved(x: torch.Tensor, shift: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return x normalised, then scaled and shifted."""
    return F.layer_norm(x, x.shape[-1:], scale, shift, _PLAIN_EPSILON)
