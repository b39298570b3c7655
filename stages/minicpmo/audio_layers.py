"""The audio encoder's arithmetic, without a conversation: sound in, rows out.

The network is Whisper's encoder and a projector; names are those of the published checkpoint.
"""

from dataclasses import dataclass
from typing import Final, Protocol

import torch
import torch.nn.functional as F

from stages.minicpmo.audio_state import AudioEncoderSizes
from stages.minicpmo.named_tensors import Linear, NamedTensors, Norm, attend, joined

_EPSILON: Final = 1e-5


class Seen(Protocol):
    """What a pass sees besides its own rows."""

    @property
    def mask(self) -> torch.Tensor | None:
        """For `attend`."""
        ...

    def joined(self, layer: int, new: torch.Tensor) -> torch.Tensor:
        """Return [2, batch, keys, hidden]: what was before, and `new` [2, batch, rows, hidden]."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Convolutions:
    """From mel to rows, two frames a row."""

    first: tuple[torch.Tensor, torch.Tensor]
    """Weight [hidden, bands, 3] and bias [hidden]."""
    second: tuple[torch.Tensor, torch.Tensor]

    def __call__(self, mel: torch.Tensor) -> torch.Tensor:
        """Return [batch, ceil(frames / 2), hidden] for [batch, bands, frames]."""
        x = F.gelu(F.conv1d(mel, *self.first, padding=1))
        x = F.gelu(F.conv1d(x, *self.second, stride=2, padding=1))
        return x.transpose(1, 2)


@dataclass(frozen=True, slots=True, eq=False)
class AudioLayer:
    """One layer: attention, then two linear layers; each normalised before and added after."""

    heads: int
    norm: Norm
    query_key_value: Linear
    out: Linear
    ffn_norm: Norm
    ffn_in: Linear
    ffn_out: Linear

    def __call__(
        self, x: torch.Tensor, layer: int, seen: Seen
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return x [batch, rows, hidden] after the layer, and its [2, batch, rows, hidden]."""
        queries, keys, values = self.query_key_value(self.norm(x)).chunk(3, dim=-1)
        new = torch.stack([keys, values])
        keys, values = seen.joined(layer, new)
        x = x + self.out(attend(queries, keys, values, self.heads, seen.mask))
        return x + self.ffn_out(F.gelu(self.ffn_in(self.ffn_norm(x)))), new


@dataclass(frozen=True, slots=True, eq=False)
class AudioLayers:
    """The whole network."""

    convolutions: Convolutions
    positions: torch.Tensor
    """[positions, hidden]"""
    layers: tuple[AudioLayer, ...]
    norm: Norm
    projector: tuple[Linear, Linear]
    pool: int

    def encode(self, x: torch.Tensor, seen: Seen) -> tuple[torch.Tensor, torch.Tensor]:
        """Return x [batch, rows, hidden] after the last norm, and what it leaves behind.

        That is [layers, 2, batch, rows, hidden]: its keys and values.
        """
        left = []
        for number, layer in enumerate(self.layers):
            x, new = layer(x, number, seen)
            left.append(new)
        return self.norm(x), torch.stack(left)

    def project(self, x: torch.Tensor) -> torch.Tensor:
        """Return [batch, rows // pool, llm_hidden]; the odd rest of a pool is lost."""
        x = self.projector[1](F.relu(self.projector[0](x)))
        whole = x.shape[1] // self.pool * self.pool
        pools = x[:, :whole].reshape(len(x), -1, self.pool, x.shape[2])
        return pools.mean(2)


def take_audio_layers(sizes: AudioEncoderSizes, tensors: NamedTensors) -> AudioLayers:
    """Return the network of these weights; raise WrongTensors if one lacks or does not fit."""
    wide, llm = sizes.hidden, sizes.llm_hidden
    return AudioLayers(
        convolutions=Convolutions(
            _convolution(tensors, "apm.conv1", wide, sizes.mel_bands),
            _convolution(tensors, "apm.conv2", wide, wide),
        ),
        positions=tensors.take("apm.embed_positions.weight", (sizes.positions, wide)),
        layers=tuple(_layer(sizes, tensors, f"apm.layers.{i}") for i in range(sizes.layers)),
        norm=tensors.norm("apm.layer_norm", wide, _EPSILON),
        projector=(
            tensors.linear("audio_projection_layer.linear1", llm, wide),
            tensors.linear("audio_projection_layer.linear2", llm, llm),
        ),
        pool=sizes.pool,
    )


def _layer(sizes: AudioEncoderSizes, tensors: NamedTensors, name: str) -> AudioLayer:
    wide = sizes.hidden
    attention = f"{name}.self_attn"
    return AudioLayer(
        heads=sizes.heads,
        norm=tensors.norm(f"{attention}_layer_norm", wide, _EPSILON),
        query_key_value=joined(
            [
                tensors.linear(f"{attention}.q_proj", wide, wide),
                tensors.linear(f"{attention}.k_proj", wide, wide, has_bias=False),
                tensors.linear(f"{attention}.v_proj", wide, wide),
            ]
        ),
        out=tensors.linear(f"{attention}.out_proj", wide, wide),
        ffn_norm=tensors.norm(f"{name}.final_layer_norm", wide, _EPSILON),
        ffn_in=tensors.linear(f"{name}.fc1", sizes.ffn, wide),
        ffn_out=tensors.linear(f"{name}.fc2", wide, sizes.ffn),
    )


def _convolution(
    tensors: NamedTensors, name: str, out: int, into: int
) -> tuple[torch.Tensor, torch.Tensor]:
    return tensors.take(f"{name}.weight", (out, into, 3)), tensors.take(f"{name}.bias", (out,))
