"""What the picture encoder is given: a JPEG or PNG file to patches of pixels.

Rule 1: a picture is one piece. It is resized, up or down, to about 448 x 448 pixels in its own
        proportions, each side a multiple of 14. (Vectors, section 3.)
Rule 2: files come from outside. Only two formats are opened, sizes are read before pixels, and
        whatever is wrong with a file is a StageFailed.

Reading a picture takes tens of milliseconds of a core; call it where nobody waits for the loop.
"""

import io
import math
import struct
import zlib
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from session.errors import StageFailed

MAX_PIXELS: Final = 4096 * 4096
"""Of a file: 50 MB once it is unpacked."""

_FORMATS: Final = ("JPEG", "PNG")
_CHANNELS: Final = 3
_MOST_STRETCHED: Final = 2
"""A picture may have this many times the patches of a square one; a thin strip has many more."""


@dataclass(frozen=True, slots=True)
class ImageSizes:
    """How pictures are cut."""

    side: int = 448
    """Pixels of a square picture's side after resizing."""
    patch: int = 14
    """Pixels of a patch's side."""

    @property
    def max_patches(self) -> int:
        """The most patches that a picture may have."""
        return _MOST_STRETCHED * (self.side // self.patch) ** 2


@dataclass(frozen=True, slots=True, eq=False)
class Patches:
    """A picture's patches, row by row from the top left."""

    pixels: npt.NDArray[np.float32] = field(repr=False)
    """[rows * columns, 3 * patch * patch] in -1..1: channel, line, pixel."""
    rows: int
    columns: int


def read_image(file: bytes, sizes: ImageSizes) -> Patches:
    """Return the patches of a JPEG or PNG file. Raise StageFailed if it can not be used."""
    pixels = _normalised(_resized(file, sizes))
    rows, columns = pixels.shape[0] // sizes.patch, pixels.shape[1] // sizes.patch
    grid = pixels.reshape(rows, sizes.patch, columns, sizes.patch, _CHANNELS)
    flat = grid.transpose(0, 2, 4, 1, 3).reshape(rows * columns, -1)
    return Patches(np.ascontiguousarray(flat), rows, columns)


def resized_to(width: int, height: int, sizes: ImageSizes) -> tuple[int, int]:
    """Return width and height in pixels to which a picture is resized."""
    ratio = width / height
    new_height = int(sizes.side / math.sqrt(ratio))
    # From the height already cut to a whole number, as the model was trained.
    new_width = int(new_height * ratio)
    return _to_patches(new_width, sizes.patch), _to_patches(new_height, sizes.patch)


def _resized(file: bytes, sizes: ImageSizes) -> npt.NDArray[np.uint8]:
    # Imported here: a service without a camera needs no Pillow.
    from PIL import Image  # noqa: PLC0415

    broken = (OSError, ValueError, SyntaxError, EOFError, struct.error, zlib.error)
    bombs = (Image.DecompressionBombError, Image.DecompressionBombWarning)
    try:
        with Image.open(io.BytesIO(file), formats=_FORMATS) as image:
            size = _checked_size(image.width, image.height, sizes)
            rgb = image.convert("RGB").resize(size, Image.Resampling.BICUBIC)
    except (*broken, *bombs) as error:
        raise StageFailed("a picture can not be used: it is not a whole JPEG or PNG") from error
    return np.asarray(rgb)


def _checked_size(width: int, height: int, sizes: ImageSizes) -> tuple[int, int]:
    if width * height > MAX_PIXELS:
        raise StageFailed(f"a picture of {width} x {height} pixels is too large")
    size = resized_to(width, height, sizes)
    if size[0] * size[1] > sizes.max_patches * sizes.patch**2:
        raise StageFailed(f"a picture of {width} x {height} pixels is too narrow")
    return size


def _normalised(image: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    half = np.float32(0.5)
    return (image.astype(np.float32) / np.float32(255) - half) / half


def _to_patches(pixels: int, patch: int) -> int:
    return max(round(pixels / patch), 1) * patch
