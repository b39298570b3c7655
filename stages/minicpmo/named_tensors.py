"""A network's weights by their published names, and the layers that are made of them.

Whoever builds a network takes each tensor it knows, and says when it is done: a tensor that lacks,
has another shape or was never taken is a checkpoint for another network, and named in the error.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F


class WrongTensors(ValueError):
    """These weights do not fit the network that is to be built; the message names the tensors."""


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """y = x W^T + b."""

    weight: torch.Tensor
    """[out, in]"""
    bias: torch.Tensor | None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return [..., out] for [..., in]."""
        return F.linear(x, self.weight, self.bias)


@dataclass(frozen=True, slots=True, eq=False)
class Norm:
    """Layer normalisation over the last axis."""

    weight: torch.Tensor
    bias: torch.Tensor
    epsilon: float

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return x normalised, in its own shape."""
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.epsilon)


class NamedTensors:
    """Weights that wait to be taken, each once."""

    def __init__(
        self, tensors: Mapping[str, torch.Tensor], device: torch.device, dtype: torch.dtype
    ) -> None:
        """Give out `tensors` as copies on `device` in `dtype`; they themselves stay as they are."""
        self._waiting = dict(tensors)
        self._device = device
        self._dtype = dtype

    @property
    def names(self) -> tuple[str, ...]:
        """Names that were not taken yet."""
        return tuple(self._waiting)

    def take(self, name: str, shape: Sequence[int]) -> torch.Tensor:
        """Return the tensor; raise WrongTensors if it lacks or has another shape."""
        tensor = self._waiting.pop(name, None)
        if tensor is None:
            raise WrongTensors(f"the checkpoint has no tensor {name}")
        if tuple(tensor.shape) != tuple(shape):
            raise WrongTensors(
                f"the tensor {name} has shape {list(tensor.shape)}, the network needs {list(shape)}"
            )
        # A copy, because a view would keep the whole file mapped.
        return tensor.detach().to(self._device, self._dtype, copy=True)

    def linear(self, name: str, out: int, into: int, *, has_bias: bool = True) -> Linear:
        """Return the layer `name.weight` and, if it has one, `name.bias`."""
        weight = self.take(f"{name}.weight", (out, into))
        return Linear(weight, self.take(f"{name}.bias", (out,)) if has_bias else None)

    def norm(self, name: str, size: int, epsilon: float) -> Norm:
        """Return the layer `name.weight` and `name.bias`."""
        weight = self.take(f"{name}.weight", (size,))
        return Norm(weight, self.take(f"{name}.bias", (size,)), epsilon)

    def finish(self) -> None:
        """Raise WrongTensors if a tensor was not taken."""
        if self._waiting:
            raise WrongTensors(f"the network does not use these tensors: {sorted(self._waiting)}")


def joined(layers: Sequence[Linear]) -> Linear:
    """Return one layer that does the work of several on the same input, one behind the other."""
    biases = [
        torch.zeros_like(one.weight[:, 0]) if one.bias is None else one.bias for one in layers
    ]
    return Linear(torch.cat([one.weight for one in layers]), torch.cat(biases))


def split_heads(x: torch.Tensor, heads: int) -> torch.Tensor:
    """Return [..., heads, rows, size / heads] for [..., rows, size]."""
    return x.view(*x.shape[:-1], heads, -1).transpose(-2, -3)


def attend(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    heads: int,
    mask: torch.Tensor | None,
) -> torch.Tensor:
    """Return [batch, queries, size]: full attention of several heads over [batch, keys, size].

    `mask` is what attention can be given: True, or 0, where a key is seen.
    """
    mixed = F.scaled_dot_product_attention(
        split_heads(queries, heads), split_heads(keys, heads), split_heads(values, heads), mask
    )
    return mixed.transpose(1, 2).flatten(2)
