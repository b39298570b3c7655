"""The conformer's arithmetic: codes to two rows each, a call at a time.

1. A code's row sees three codes ahead, so a call yields three rows fewer than it is given, unless
   it is the last one, which looks at zeros.
2. Rows attend to all rows of their call and to what is remembered, by their distance. Conversations
   of one batch that remember more or less are filled up in front with keys that a mask hides: in
   front, so that all distances stay what they are.
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
_LAYER_EPSILON: Final = 1e-12
_HIDDEN_KEY: Final = float("-inf")


@dataclass(frozen=True, slots=True, eq=False)
class Past:
    """What the conversations of a batch remember of one stack of layers."""

    rows: torch.Tensor
    """[layers, batch, heads, keys, 2 * head size]: keys and values, filled up in front."""
    mask: torch.Tensor | None
    """[batch, 1, 1, keys]: True where there is something; None if that is everywhere."""


@dataclass(frozen=True, slots=True, eq=False)
class ConformerLayer:
    """One layer: attention by distance, then two linear layers; each normalised before."""

    heads: int
    norm: Norm
    query_key_value: Linear
    out: Linear
    position: Linear
    bias_u: torch.Tensor
    """[heads, 1, head size] Added to a query that meets a key."""
    bias_v: torch.Tensor
    """The same, for one that meets a distance."""
    ffn_norm: Norm
    ffn_in: Linear
    ffn_out: Linear

    def __call__(
        self,
        x: torch.Tensor,
        distances: torch.Tensor,
        past: torch.Tensor,
        mask: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return x [batch, rows, hidden] after the layer, and its [batch, heads, rows, 2 * size].

        `distances` is [keys + rows - 1, hidden], the farthest first.
        """
        queries, keys, values = (
            split_heads(part, self.heads)
            for part in self.query_key_value(self.norm(x)).chunk(3, dim=-1)
        )
        new = torch.cat([keys, values], -1)
        keys, values = torch.cat([past, new], 2).chunk(2, -1)
        towards = split_heads(self.position(distances), self.heads).transpose(-2, -1)
        bias = _shifted((queries + self.bias_v) @ towards, keys.shape[2])
        bias = bias / math.sqrt(queries.shape[-1])
        if mask is not None:
            bias = bias.masked_fill(~mask, _HIDDEN_KEY)
        mixed = F.scaled_dot_product_attention(queries + self.bias_u, keys, values, bias)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.ffn_out(F.silu(self.ffn_in(self.ffn_norm(x)))), new


@dataclass(frozen=True, slots=True, eq=False)
class Stack:
    """Some layers behind a linear layer of their own."""

    enter: Linear
    enter_norm: Norm
    layers: tuple[ConformerLayer, ...]

    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the first layer, or a convolution before it, gets."""
        x = self.enter_norm(self.enter(x))
        return x * math.sqrt(x.shape[-1])

    def __call__(self, x: torch.Tensor, past: Past) -> tuple[torch.Tensor, torch.Tensor]:
        """Return x [batch, rows, hidden] after the layers, and their new keys and values."""
        rows, keys = x.shape[1], past.rows.shape[3] + x.shape[1]
        distances = _distances(keys - 1, rows - 1, x)
        mask = past.mask
        if mask is not None:
            mask = F.pad(mask, (0, rows), value=True)
        left = []
        for number, layer in enumerate(self.layers):
            x, new = layer(x, distances, past.rows[number], mask)
            left.append(new)
        return x, torch.stack(left)


@dataclass(frozen=True, slots=True, eq=False)
class ConformerRows:
    """What a call yields, for each conversation of the batch."""

    rows: torch.Tensor
    """[batch, 2 * codes, hidden]"""
    context: torch.Tensor
    """[batch, hidden, columns] What the convolutions keep."""
    first: torch.Tensor
    """[layers, batch, heads, codes, 2 * head size] New keys and values."""
    second: torch.Tensor
    """[layers, batch, heads, 2 * codes, 2 * head size]"""


@dataclass(frozen=True, slots=True, eq=False)
class Conformer:
    """The whole network."""

    codes: torch.Tensor
    """[codes, hidden]"""
    first: Stack
    look: tuple[torch.Tensor, torch.Tensor]
    """Weight [hidden, hidden, 4] and bias: a code and the three after it."""
    settle: tuple[torch.Tensor, torch.Tensor]
    double: tuple[torch.Tensor, torch.Tensor]
    second: Stack
    norm: Norm
    stride: int

    def __call__(
        self, codes: torch.Tensor, context: torch.Tensor, pasts: Sequence[Past], *, is_last: bool
    ) -> ConformerRows:
        """Encode [batch, codes]; `pasts` are those of the two stacks."""
        x = self.first.scaled(F.embedding(codes, self.codes)).transpose(1, 2)
        look_ahead = self.look[0].shape[2] - 1
        if is_last:
            x = F.pad(x, (0, look_ahead))
        seen = F.leaky_relu(F.conv1d(x, *self.look))
        seen = torch.cat([context[..., :CONTEXT_COLUMNS], seen], 2)
        x = F.conv1d(seen, *self.settle) + x[..., : x.shape[2] - look_ahead]
        x, first = self.first(x.transpose(1, 2), pasts[0])
        doubled = x.transpose(1, 2).repeat_interleave(self.stride, 2)
        doubled = torch.cat([context[..., CONTEXT_COLUMNS:], doubled], 2)
        x = self.second.scaled(F.conv1d(doubled, *self.double).transpose(1, 2))
        x, second = self.second(x, pasts[1])
        kept = seen[..., -CONTEXT_COLUMNS:], doubled[..., -2 * self.stride :]
        return ConformerRows(self.norm(x), torch.cat(kept, 2), first, second)


def take_conformer(sizes: FlowSizes, tensors: NamedTensors) -> Conformer:
    """Return the network of these weights; raise WrongTensors if one lacks or does not fit."""
    size = sizes.hidden

    def convolution(name: str, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        weight = tensors.take(f"encoder.{name}.weight", (size, size, width))
        return weight, tensors.take(f"encoder.{name}.bias", (size,))

    return Conformer(
        codes=tensors.take("input_embedding.weight", (sizes.vocabulary, size)),
        first=_stack(sizes, tensors, ("embed", "encoders"), sizes.layers),
        look=convolution("pre_lookahead_layer.conv1", sizes.look_ahead + 1),
        settle=convolution("pre_lookahead_layer.conv2", CONTEXT_COLUMNS + 1),
        double=convolution("up_layer.conv", 2 * sizes.stride + 1),
        second=_stack(sizes, tensors, ("up_embed", "up_encoders"), sizes.up_layers),
        norm=tensors.norm("encoder.after_norm", size, _EPSILON),
        stride=sizes.stride,
    )


def _stack(sizes: FlowSizes, tensors: NamedTensors, names: tuple[str, str], count: int) -> Stack:
    size, (enter, layers) = sizes.hidden, names
    return Stack(
        enter=tensors.linear(f"encoder.{enter}.out.0", size, size),
        enter_norm=tensors.norm(f"encoder.{enter}.out.1", size, _EPSILON),
        layers=tuple(_layer(sizes, tensors, f"encoder.{layers}.{i}") for i in range(count)),
    )


def _layer(sizes: FlowSizes, tensors: NamedTensors, name: str) -> ConformerLayer:
    size, heads = sizes.hidden, sizes.heads
    attention = f"{name}.self_attn"
    shape = (heads, size // heads)
    return ConformerLayer(
        heads=heads,
        norm=tensors.norm(f"{name}.norm_mha", size, _LAYER_EPSILON),
        query_key_value=joined(
            [tensors.linear(f"{attention}.linear_{one}", size, size) for one in "qkv"]
        ),
        out=tensors.linear(f"{attention}.linear_out", size, size),
        position=tensors.linear(f"{attention}.linear_pos", size, size, has_bias=False),
        bias_u=tensors.take(f"{attention}.pos_bias_u", shape)[:, None],
        bias_v=tensors.take(f"{attention}.pos_bias_v", shape)[:, None],
        ffn_norm=tensors.norm(f"{name}.norm_ff", size, _LAYER_EPSILON),
        ffn_in=tensors.linear(f"{name}.feed_forward.w_1", sizes.ffn, size),
        ffn_out=tensors.linear(f"{name}.feed_forward.w_2", size, sizes.ffn),
    )


def _distances(farthest: int, ahead: int, like: torch.Tensor) -> torch.Tensor:
    """Return the sines of distances `farthest` to `-ahead`: [farthest + ahead + 1, hidden]."""
    size = like.shape[-1]
    steps = torch.arange(farthest, -ahead - 1, -1, device=like.device, dtype=torch.float32)
    even = torch.arange(0, size, 2, device=like.device, dtype=torch.float32)
    angles = steps[:, None] * torch.exp(even * -(math.log(10_000.0) / size))
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1).to(like.dtype)


def _shifted(met: torch.Tensor, keys: int) -> torch.Tensor:
    """Return [..., rows, keys] by key, of [..., rows, keys + rows - 1] by distance.

    Row i stands at position keys - rows + i, so key j is entry rows - 1 - i + j of its row: read
    from entry rows - 1 on, in rows that are one shorter. One row alone is in its place.
    """
    rows, distances = met.shape[-2:]
    if rows == 1:
        return met
    flat = met.flatten(-2)[..., rows - 1 :][..., : rows * (distances - 1)]
    return torch.unflatten(flat, -1, (rows, distances - 1))[..., :keys]
