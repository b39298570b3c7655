"""What stands between picture encoder and language model: queries that look at the patches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
import torch.nn.functional as F

from stages.minicpmo.config import RESAMPLER_HEAD_SIZE
from stages.minicpmo.named_tensors import Linear, NamedTensors, Norm, attend

_EPSILON: Final = 1e-6
_PERIOD: Final = 10000.0


@dataclass(frozen=True, slots=True, eq=False)
class Resampler:
    """One layer of attention, from fixed queries to a picture's patches."""

    query: torch.Tensor
    """[queries, out]"""
    waves: torch.Tensor
    """[longest, out / 2] How a row, or a column, is told."""
    heads: int
    into: Linear | None
    """None where pictures are as wide as the language model."""
    query_norm: Norm
    patch_norm: Norm
    project_query: Linear
    project_key: Linear
    project_value: Linear
    project_mixed: Linear
    norm: Norm
    out: Linear

    def __call__(
        self, patches: torch.Tensor, shapes: Sequence[tuple[int, int]], mask: torch.Tensor | None
    ) -> torch.Tensor:
        """Return [batch, queries, out] for [batch, patches, in] of pictures of rows and columns."""
        x = self.patch_norm(patches if self.into is None else self.into(patches))
        places = torch.stack([self._places(shape, x.shape[1]) for shape in shapes])
        queries = self.project_query(self.query_norm(self.query)).expand(len(x), -1, -1)
        keys, values = self.project_key(x + places), self.project_value(x)
        mixed = self.project_mixed(attend(queries, keys, values, self.heads, mask))
        return self.out(self.norm(mixed))

    def _places(self, shape: tuple[int, int], length: int) -> torch.Tensor:
        """Return [length, out]: of each patch its column, then its row; zeros behind the last."""
        rows, columns = shape
        across = self.waves[:columns].expand(rows, -1, -1)
        down = self.waves[:rows, None].expand(-1, columns, -1)
        places = torch.cat([across, down], dim=2).flatten(0, 1)
        return F.pad(places, (0, 0, 0, length - rows * columns))


def take_resampler(
    tensors: NamedTensors, *, into: int, out: int, queries: int, longest: int
) -> Resampler:
    """Return the resampler from `into` to `out` wide; raise WrongTensors if a tensor is wrong.

    `longest` is the most rows, or columns, that a picture may have.
    """
    name = "resampler"
    weights = tensors.take(f"{name}.attn.in_proj_weight", (3 * out, out)).chunk(3)
    biases = tensors.take(f"{name}.attn.in_proj_bias", (3 * out,)).chunk(3)
    query, key, value = (Linear(*pair) for pair in zip(weights, biases, strict=True))
    proj = tensors.take(f"{name}.proj", (out, out))
    return Resampler(
        query=tensors.take(f"{name}.query", (queries, out)),
        waves=_waves(longest, out // 2).to(proj.device, proj.dtype),
        heads=out // RESAMPLER_HEAD_SIZE,
        into=None if into == out else tensors.linear(f"{name}.kv_proj", out, into, has_bias=False),
        query_norm=tensors.norm(f"{name}.ln_q", out, _EPSILON),
        patch_norm=tensors.norm(f"{name}.ln_kv", out, _EPSILON),
        project_query=query,
        project_key=key,
        project_value=value,
        project_mixed=tensors.linear(f"{name}.attn.out_proj", out, out),
        norm=tensors.norm(f"{name}.ln_post", out, _EPSILON),
        # Published the other way round: x @ proj.
        out=Linear(proj.t().contiguous(), None),
    )


def _waves(count: int, size: int) -> torch.Tensor:
    """Return [count, size]: sines, then cosines, of ever longer periods."""
    half = size // 2
    speeds = _PERIOD ** -(torch.arange(half, dtype=torch.float32) / half)
    angles = torch.arange(count, dtype=torch.float32)[:, None] * speeds
    return torch.cat([angles.sin(), angles.cos()], dim=1)
