"""The picture encoder: a camera frame to 64 embeddings, for many frames at once.

Rule 1: patches are told their place on a 70 x 70 grid that every picture is stretched over,
        whatever its own proportions. (Vectors, section 3.)
Rule 2: 64 queries look at a picture's patches and become its embeddings; here a patch is told its
        row and column, uncut.
Rule 3: pictures in a batch do not see each other. Shorter ones are filled up with zeros that a
        mask hides, and one that is not finite fails alone.

Everything runs where the weights are. A call waits for the device once, at its end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from session.errors import StageFailed
from stages.minicpmo.config import MiniCPMOConfig
from stages.minicpmo.image_input import ImageSizes, Patches, read_image
from stages.minicpmo.named_tensors import Linear, NamedTensors, Norm, attend, joined
from stages.minicpmo.resampler import Resampler, take_resampler

Places = npt.NDArray[np.int64]

_BELOW_ONE: Final = 1e-6
_CHANNELS: Final = 3
_HIDDEN_KEY: Final = float("-inf")


@dataclass(frozen=True, slots=True)
class VisionSizes:
    """Sizes of the picture encoder and of what stands between it and the language model."""

    hidden: int
    layers: int
    """That are run: one less than trained if the checkpoint's config drops the last."""
    heads: int
    ffn: int
    grid: int
    """Rows, and columns, of the grid of stored positions."""
    queries: int
    llm_hidden: int
    image: ImageSizes
    epsilon: float = 1e-6
    """Of the layers' norms."""

    @classmethod
    def of(cls, config: MiniCPMOConfig) -> "VisionSizes":
        """Return the sizes in a checkpoint's config."""
        vision = config.vision
        return cls(
            hidden=vision.hidden_size,
            layers=config.vision_layers,
            heads=vision.num_attention_heads,
            ffn=vision.intermediate_size,
            grid=vision.image_size // vision.patch_size,
            queries=config.query_num,
            llm_hidden=config.llm.hidden_size,
            image=ImageSizes(config.slices.scale_resolution, vision.patch_size),
            epsilon=vision.layer_norm_eps,
        )


@dataclass(frozen=True, slots=True, eq=False)
class VisionLayer:
    """One layer: attention, then two linear layers; each normalised before and added after."""

    heads: int
    norm: Norm
    query_key_value: Linear
    out: Linear
    ffn_norm: Norm
    ffn_in: Linear
    ffn_out: Linear

    def __call__(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Return x [batch, patches, hidden] after the layer."""
        queries, keys, values = self.query_key_value(self.norm(x)).chunk(3, dim=-1)
        x = x + self.out(attend(queries, keys, values, self.heads, mask))
        inner = F.gelu(self.ffn_in(self.ffn_norm(x)), approximate="tanh")
        return x + self.ffn_out(inner)


@dataclass(frozen=True, slots=True, eq=False)
class VisionLayers:
    """The whole network."""

    patch: Linear
    positions: torch.Tensor
    """[grid * grid, hidden]"""
    layers: tuple[VisionLayer, ...]
    norm: Norm
    resampler: Resampler


class VisionEncoder:
    """The network on one device."""

    def __init__(self, sizes: VisionSizes, layers: VisionLayers) -> None:
        self._sizes = sizes
        self._layers = layers
        self._device, self._dtype = layers.positions.device, layers.positions.dtype

    @classmethod
    def from_tensors(
        cls,
        sizes: VisionSizes,
        tensors: Mapping[str, torch.Tensor],
        device: torch.device,
        dtype: torch.dtype,
    ) -> "VisionEncoder":
        """Build the encoder of `vpm.*` and `resampler.*`, and of nothing else.

        Raise WrongTensors, which names them, for tensors that lack, do not fit or are surplus.
        """
        named = NamedTensors(tensors, device, dtype)
        layers = _take_layers(sizes, named)
        named.finish()
        return cls(sizes, layers)

    def encode(self, files: Sequence[bytes]) -> list[torch.Tensor | StageFailed]:
        """Return each JPEG's or PNG's [queries, llm_hidden], or why there is none."""
        read = [self._read(file) for file in files]
        encoded = iter(self.encode_patches([one for one in read if isinstance(one, Patches)]))
        return [next(encoded) if isinstance(one, Patches) else one for one in read]

    def encode_patches(self, images: Sequence[Patches]) -> list[torch.Tensor | StageFailed]:
        """Return each picture's [queries, llm_hidden], or why there is none."""
        if not images:
            return []
        with torch.inference_mode():
            embeddings = self._compute(images)
            is_finite = embeddings.isfinite().flatten(1).all(1).tolist()
        return [
            one if good else StageFailed("a picture became numbers that are not finite")
            for one, good in zip(embeddings, is_finite, strict=True)
        ]

    def warm_up(self, batch_sizes: Sequence[int]) -> None:
        """Run batches of these sizes, so that no camera frame pays for the first."""
        side, patch = self._sizes.image.side // self._sizes.image.patch, self._sizes.image.patch
        size = _CHANNELS * patch**2
        square = Patches(np.zeros((side * side, size), np.float32), side, side)
        other = Patches(np.zeros((side, size), np.float32), 1, side)
        for count in batch_sizes:
            self.encode_patches([square] * count)
            self.encode_patches([square] * (count - 1) + [other])

    def _read(self, file: bytes) -> Patches | StageFailed:
        try:
            return read_image(file, self._sizes.image)
        except StageFailed as error:
            return error

    def _compute(self, images: Sequence[Patches]) -> torch.Tensor:
        lengths = [len(image.pixels) for image in images]
        mask = None if min(lengths) == max(lengths) else self._mask(lengths)
        pixels = np.zeros((len(images), max(lengths), images[0].pixels.shape[1]), np.float32)
        places = np.zeros((len(images), max(lengths)), np.int64)
        for i, image in enumerate(images):
            pixels[i, : lengths[i]] = image.pixels
            places[i, : lengths[i]] = grid_places(image.rows, image.columns, self._sizes.grid)
        x = self._layers.patch(torch.from_numpy(pixels).to(self._device, self._dtype))
        x = x + F.embedding(torch.from_numpy(places).to(self._device), self._layers.positions)
        for layer in self._layers.layers:
            x = layer(x, mask)
        x = self._layers.norm(x)
        return self._layers.resampler(x, [(one.rows, one.columns) for one in images], mask)

    def _mask(self, lengths: Sequence[int]) -> torch.Tensor:
        seen = torch.tensor(lengths, device=self._device)
        keys = torch.arange(max(lengths), device=self._device)
        mask = torch.zeros(len(lengths), len(keys), device=self._device, dtype=self._dtype)
        return mask.masked_fill_(keys >= seen[:, None], _HIDDEN_KEY)[:, None, None]


def grid_places(rows: int, columns: int, grid: int) -> Places:
    """Return the [rows * columns] places on the grid at which a picture's patches stand."""
    down, across = _stretched(rows, grid), _stretched(columns, grid)
    return (down[:, None] * grid + across).reshape(-1)


def _stretched(count: int, grid: int) -> Places:
    # Not `i * grid // count`: a patch that begins on a line of the grid stands where the rounding
    # of these float32 values puts it, since the model was trained with it (25 rows: 5 is at 13).
    lines = torch.arange(1 / grid, 1.0, 1 / grid)
    step = (1 / torch.tensor(count)).item()
    begins = torch.arange(0, 1 - _BELOW_ONE, step)
    places: Places = torch.bucketize(begins, lines, right=True).numpy()
    return places


def _take_layers(sizes: VisionSizes, tensors: NamedTensors) -> VisionLayers:
    wide, patch = sizes.hidden, sizes.image.patch
    stem = "vpm.embeddings.patch_embedding"
    weight = tensors.take(f"{stem}.weight", (wide, _CHANNELS, patch, patch))
    return VisionLayers(
        patch=Linear(weight.view(wide, -1), tensors.take(f"{stem}.bias", (wide,))),
        positions=tensors.take("vpm.embeddings.position_embedding.weight", (sizes.grid**2, wide)),
        layers=tuple(
            _take_layer(sizes, tensors, f"vpm.encoder.layers.{i}") for i in range(sizes.layers)
        ),
        norm=tensors.norm("vpm.post_layernorm", wide, sizes.epsilon),
        resampler=take_resampler(
            tensors,
            into=wide,
            out=sizes.llm_hidden,
            queries=sizes.queries,
            longest=sizes.image.max_patches,
        ),
    )


def _take_layer(sizes: VisionSizes, tensors: NamedTensors, name: str) -> VisionLayer:
    wide = sizes.hidden
    return VisionLayer(
        heads=sizes.heads,
        norm=tensors.norm(f"{name}.layer_norm1", wide, sizes.epsilon),
        query_key_value=joined(
            [tensors.linear(f"{name}.self_attn.{one}_proj", wide, wide) for one in "qkv"]
        ),
        out=tensors.linear(f"{name}.self_attn.out_proj", wide, wide),
        ffn_norm=tensors.norm(f"{name}.layer_norm2", wide, sizes.epsilon),
        ffn_in=tensors.linear(f"{name}.mlp.fc1", sizes.ffn, wide),
        ffn_out=tensors.linear(f"{name}.mlp.fc2", wide, sizes.ffn),
    )
