"""The flow network's sizes, read off the shapes of its tensors, and what one turn's memory takes.

The published folder says them in a `flow.yaml` that names Python classes to build. The shapes say
the same, can not be wrong about the tensors, and name no code.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch

from stages.minicpmo.named_tensors import WrongTensors

KEPT_FRAMES: Final = 100
"""Frames of mel that a turn's memory keeps besides as many as its voice has."""
CONTEXT_COLUMNS: Final = 2
"""What a convolution over three columns keeps of the call before."""

_FIRST_LAYER: Final = "encoder.encoders.0.self_attn.pos_bias_u"
_ATTENTION: Final = "decoder.estimator.blocks.0.attn."


@dataclass(frozen=True, slots=True)
class FlowSizes:
    """Sizes of the flow: codes to rows (the conformer), rows to mel (the estimator)."""

    vocabulary: int
    speaker: int
    """Values of a speaker's embedding."""
    bands: int
    """Of the mel."""
    hidden: int
    """Of the conformer."""
    heads: int
    ffn: int
    layers: int
    """Before the doubling, one row a code."""
    up_layers: int
    """After it, one row a frame."""
    look_ahead: int
    """Codes."""
    stride: int
    """Frames a code."""
    wide: int
    """Hidden size of the estimator."""
    wide_heads: int
    head_size: int
    """Of the estimator."""
    wide_ffn: int
    depth: int
    """Blocks of the estimator."""
    frequencies: int
    """Values that describe a time before the time's own layers."""

    @classmethod
    def of(cls, tensors: Mapping[str, torch.Tensor]) -> "FlowSizes":
        """Return the sizes of `flow.pt`; raise WrongTensors if they can not be told."""
        vocabulary, hidden = _shape(tensors, "input_embedding.weight", 2)
        bands, speaker = _shape(tensors, "spk_embed_affine_layer.weight", 2)
        head_size = _shape(tensors, f"{_ATTENTION}q_norm.weight", 1)[0]
        inner, wide = _shape(tensors, f"{_ATTENTION}to_q.weight", 2)
        time = _shape(tensors, "decoder.estimator.t_embedder.mlp.0.weight", 2)
        return cls(
            vocabulary=vocabulary,
            speaker=speaker,
            bands=bands,
            hidden=hidden,
            heads=_shape(tensors, _FIRST_LAYER, 2)[0],
            ffn=_shape(tensors, "encoder.encoders.0.feed_forward.w_1.weight", 2)[0],
            layers=_count(tensors, "encoder.encoders."),
            up_layers=_count(tensors, "encoder.up_encoders."),
            look_ahead=_shape(tensors, "encoder.pre_lookahead_layer.conv1.weight", 3)[2] - 1,
            # The convolution behind the doubling sees the frames of two codes and its own.
            stride=_shape(tensors, "encoder.up_layer.conv.weight", 3)[2] // 2,
            wide=wide,
            wide_heads=inner // head_size,
            head_size=head_size,
            wide_ffn=_shape(tensors, "decoder.estimator.blocks.0.mlp.fc1.weight", 2)[0],
            depth=_count(tensors, "decoder.estimator.blocks."),
            frequencies=time[1],
        )

    def __post_init__(self) -> None:
        """Raise WrongTensors for sizes that no flow can have."""
        if self.hidden % self.heads or self.hidden % 2 or self.frequencies % 2:
            raise WrongTensors(f"{self.hidden} values can not be shared by {self.heads} heads")
        if self.stride != 2 or not self.look_ahead:
            raise WrongTensors(
                f"a flow of {self.stride} frames a code that looks {self.look_ahead} codes ahead"
            )

    @property
    def context(self) -> int:
        """Columns that the conformer's two convolutions keep of the call before."""
        return CONTEXT_COLUMNS + 2 * self.stride


PUBLISHED: Final = FlowSizes(
    vocabulary=6561,
    speaker=192,
    bands=80,
    hidden=512,
    heads=8,
    ffn=2048,
    layers=6,
    up_layers=4,
    look_ahead=3,
    stride=2,
    wide=512,
    wide_heads=8,
    head_size=64,
    wide_ffn=2048,
    depth=16,
    frequencies=256,
)
"""Those of MiniCPM-o 4.5: 155.8 million values in 605 tensors."""


def flow_state_bytes(
    sizes: FlowSizes, steps: int, dtype: torch.dtype, frames: int, *, is_full: bool = True
) -> int:
    """Return what one turn's memory takes with a voice of `frames` frames of mel.

    A full one has KEPT_FRAMES more than at the turn's beginning. Nearly all of it is the
    estimator's keys and values: steps x depth x 2 (with and without condition) x frames x 2 (keys
    and values) x heads x head size. With the published sizes, 5 steps, a voice of 6 s and 16 bits a
    full one takes 137 MB.
    """
    kept = frames + (KEPT_FRAMES if is_full else 0)
    attention = kept * 2 * sizes.wide_heads * sizes.head_size
    estimator = steps * sizes.depth * 2 * (attention + 2 * sizes.wide * CONTEXT_COLUMNS)
    rows = sizes.layers * (kept // sizes.stride) + sizes.up_layers * kept
    conformer = sizes.hidden * (2 * rows + sizes.context)
    return (estimator + conformer) * dtype.itemsize


def _shape(tensors: Mapping[str, torch.Tensor], name: str, axes: int) -> tuple[int, ...]:
    if name not in tensors:
        raise WrongTensors(f"the checkpoint has no tensor {name}")
    shape = tuple(tensors[name].shape)
    if len(shape) != axes or 0 in shape:
        raise WrongTensors(f"the tensor {name} has shape {list(shape)}, not {axes} axes")
    return shape


def _count(tensors: Mapping[str, torch.Tensor], prefix: str) -> int:
    """Return how many numbers follow the prefix in the tensors' names."""
    numbers = {name[len(prefix) :].split(".")[0] for name in tensors if name.startswith(prefix)}
    return len(numbers)
