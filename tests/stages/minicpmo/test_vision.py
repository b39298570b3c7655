"""Camera frames against the recorded vectors, and files that nobody should trust."""

import io
import struct
import zlib
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image

from session.errors import StageFailed
from stages.minicpmo.config import read_config
from stages.minicpmo.image_input import ImageSizes, Patches, read_image, resized_to
from stages.minicpmo.named_tensors import NamedTensors, WrongTensors
from stages.minicpmo.resampler import take_resampler
from stages.minicpmo.vision import VisionEncoder, VisionSizes, grid_places
from stages.minicpmo.weight_rule import RULES_FILE
from tests.stages.minicpmo.tiny_weights import CPU, VISION, VISION_SIZES, tensors, vision_encoder
from tests.stages.minicpmo.vectors import arrays

pytestmark = pytest.mark.models

RECORDED: Final = 1e-4
SAME: Final = 1e-5
SIZES: Final = ImageSizes()

Pixels = npt.NDArray[np.uint8]


def square() -> Pixels:
    y, x = np.mgrid[:448, :448]
    checks = (x // 16 + y // 16) % 2 * 160 + 40
    return np.stack([x * 255 // 447, y * 255 // 447, checks], axis=-1).astype(np.uint8)


def wide() -> Pixels:
    y, x = np.mgrid[:360, :640]
    return np.stack([x * 255 // 639, (x + y) % 256, y * 255 // 359], axis=-1).astype(np.uint8)


def file_of(pixels: Pixels, kind: str = "PNG", mode: str = "RGB") -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, kind)
    return file.getvalue()


def png_that_says(width: int, height: int) -> bytes:
    """Return a PNG of a few bytes whose header promises a picture of any size."""

    def chunk(name: bytes, body: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(name + body))
        return struct.pack(">I", len(body)) + name + body + check

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    ending = chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + ending


PICTURES: Final = {"exact448": file_of(square()), "resized640x360": file_of(wide())}


@pytest.fixture(scope="module")
def encoder() -> VisionEncoder:
    return vision_encoder()


def embeddings(result: torch.Tensor | StageFailed) -> npt.NDArray[np.float32]:
    assert isinstance(result, torch.Tensor)
    values: npt.NDArray[np.float32] = result.numpy()
    assert values.shape == (64, 128)
    return values


def far(got: torch.Tensor | StageFailed, wanted: npt.NDArray[np.float32]) -> float:
    return float(np.abs(embeddings(got) - wanted).max())


@pytest.mark.parametrize("name", PICTURES)
def test_pixels_are_those_recorded(name: str) -> None:
    recorded = arrays("vision")
    patches = read_image(PICTURES[name], SIZES)
    assert [patches.rows, patches.columns] == recorded[f"{name}_tgt_size"].tolist()
    # Recorded as [channel, line, patch and pixel].
    pixels = patches.pixels.reshape(-1, 3, 14, 14).transpose(1, 2, 0, 3).reshape(3, 14, -1)
    assert list(pixels.shape) == recorded[f"{name}_pixel_shape"].tolist()
    np.testing.assert_array_equal(pixels.ravel()[::97], recorded[f"{name}_pixels_every_97th"])


@pytest.mark.parametrize("name", PICTURES)
def test_embeddings_are_those_recorded(encoder: VisionEncoder, name: str) -> None:
    recorded = arrays("vision")
    (got,) = encoder.encode([PICTURES[name]])
    assert far(got, recorded[f"{name}_embeddings"]) < RECORDED


def test_a_batch_is_each_of_its_pictures_alone(encoder: VisionEncoder) -> None:
    sides = ((448, 448), (640, 360), (360, 640), (90, 900), (448, 448))
    noise = np.random.default_rng(1)
    files = [file_of(noise.integers(0, 256, (h, w, 3), dtype=np.uint8)) for w, h in sides]
    alone = [embeddings(encoder.encode([file])[0]) for file in files]
    for order in (range(5), range(4, -1, -1), (0, 4), (3,)):
        for i, got in zip(order, encoder.encode([files[i] for i in order]), strict=True):
            assert far(got, alone[i]) < SAME


def test_a_bad_picture_fails_alone(encoder: VisionEncoder) -> None:
    recorded = arrays("vision")
    good = PICTURES["exact448"]
    results = encoder.encode([good[:1000], good, b"", PICTURES["resized640x360"]])
    assert isinstance(results[0], StageFailed)
    assert far(results[1], recorded["exact448_embeddings"]) < RECORDED
    assert isinstance(results[2], StageFailed)
    assert far(results[3], recorded["resized640x360_embeddings"]) < RECORDED
    assert isinstance(encoder.encode([b""])[0], StageFailed)
    assert encoder.encode([]) == []


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_pixels_that_are_not_finite_fail_alone(encoder: VisionEncoder, value: float) -> None:
    recorded = arrays("vision")
    square_one = read_image(PICTURES["exact448"], SIZES)
    bad = Patches(np.full((12, 588), value, np.float32), 3, 4)
    failed, good = encoder.encode_patches([bad, square_one])
    assert isinstance(failed, StageFailed)
    assert far(good, recorded["exact448_embeddings"]) < RECORDED


def test_a_jpeg_is_read_and_is_near_its_png() -> None:
    smooth = square()
    smooth[..., 2] = 128
    png, jpeg = (read_image(file_of(smooth, kind), SIZES) for kind in ("PNG", "JPEG"))
    assert 0 < np.abs(png.pixels - jpeg.pixels).mean() < 0.02


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "1", "LA", "I;16"])
def test_every_kind_of_png_becomes_three_channels(mode: str) -> None:
    grey = np.broadcast_to(np.arange(448, dtype=np.uint8)[:, None, None] % 200, (448, 448, 3))
    pixels = np.ascontiguousarray(grey)
    source = Image.fromarray(pixels).convert("L") if mode == "I;16" else Image.fromarray(pixels)
    file = io.BytesIO()
    source.convert(mode).save(file, "PNG")
    patches = read_image(file.getvalue(), SIZES)
    assert patches.pixels.shape == (1024, 588)
    assert np.abs(patches.pixels).max() <= 1


BROKEN: Final[dict[str, bytes]] = {
    "nothing": b"",
    "only the first bytes": b"\x89PNG\r\n\x1a\n",
    "text": b"this is not a picture" * 100,
    "cut png": PICTURES["exact448"][:-2000],
    "cut jpeg": file_of(square(), "JPEG")[:-2000],
    "another format": file_of(square(), "BMP"),
    "another format, animated": file_of(square(), "GIF"),
    "promises": png_that_says(448, 448),
    "no width": png_that_says(0, 448),
}


@pytest.mark.parametrize("file", BROKEN.values(), ids=list(BROKEN))
def test_a_file_that_is_not_a_whole_picture_is_refused(file: bytes) -> None:
    with pytest.raises(StageFailed, match="not a whole JPEG or PNG"):
        read_image(file, SIZES)


@pytest.mark.parametrize(
    ("width", "height", "problem"),
    [
        (4097, 4096, "too large"),
        (60_000, 60_000, r"too large|not a whole"),
        (11_000, 11_000, r"too large|not a whole"),
        (10_000, 1, "too narrow"),
        (1, 10_000, "too narrow"),
        (4096, 4096, "not a whole"),
        (1000, 1, "not a whole"),
    ],
)
def test_sizes_are_judged_before_pixels_are_read(width: int, height: int, problem: str) -> None:
    with pytest.raises(StageFailed, match=problem):
        read_image(png_that_says(width, height), SIZES)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ((448, 448), (448, 448)),
        ((640, 360), (602, 336)),
        ((360, 640), (336, 602)),
        ((1920, 1080), (602, 336)),
        ((32, 32), (448, 448)),
        ((640, 480), (518, 392)),
        # Not 1428: the height is cut to 141 before the width is taken from it.
        ((1000, 100), (1414, 140)),
        ((100_000, 100), (14_000, 14)),
    ],
)
def test_pictures_keep_their_proportions(given: tuple[int, int], wanted: tuple[int, int]) -> None:
    assert resized_to(*given, SIZES) == wanted


def test_places_are_stretched_over_the_grid() -> None:
    assert grid_places(70, 70, 70).tolist() == list(range(4900))
    assert grid_places(1, 2, 70).tolist() == [0, 35]
    assert grid_places(2, 1, 70).tolist() == [0, 35 * 70]
    # Every fifth of 25 patches begins on a line, and float32 puts it before it.
    exact = [i * 70 // 25 for i in range(25)]
    early = [place - 1 if i and i % 5 == 0 else place for i, place in enumerate(exact)]
    assert grid_places(1, 25, 70).tolist() == early
    assert all(len(grid_places(1, count, 70)) == count for count in range(1, 2049))


def test_sizes_are_those_of_the_config() -> None:
    assert VisionSizes.of(read_config(RULES_FILE.parent)) == VISION_SIZES


def test_a_picture_as_wide_as_the_language_model_needs_no_projection() -> None:
    given = tensors(["resampler."])
    del given["resampler.kv_proj.weight"]
    named = NamedTensors(given, CPU, torch.float32)
    resampler = take_resampler(named, into=128, out=128, queries=64, longest=9)
    named.finish()
    patches = torch.ones(2, 6, 128)
    assert resampler(patches, [(2, 3), (3, 2)], None).shape == (2, 64, 128)


def test_warming_up_leaves_the_encoder_as_it_was(encoder: VisionEncoder) -> None:
    recorded = arrays("vision")
    encoder.warm_up([1, 2])
    (got,) = encoder.encode([PICTURES["exact448"]])
    assert far(got, recorded["exact448_embeddings"]) < RECORDED


def test_half_precision_stays_near_and_in_its_own_type() -> None:
    recorded = arrays("vision")["resized640x360_embeddings"]
    encoder = VisionEncoder.from_tensors(VISION_SIZES, tensors(VISION), CPU, torch.bfloat16)
    got = encoder.encode(list(PICTURES.values()))[1]
    assert isinstance(got, torch.Tensor)
    assert got.dtype == torch.bfloat16
    assert far(got.float(), recorded) < 0.2


def test_tensors_that_lack_do_not_fit_or_are_surplus_are_named() -> None:
    whole = tensors(VISION)
    for name in whole:
        lacking = {other: tensor for other, tensor in whole.items() if other != name}
        with pytest.raises(WrongTensors, match=f"no tensor {name}"):
            VisionEncoder.from_tensors(VISION_SIZES, lacking, CPU, torch.float32)
    surplus = {**whole, "vpm.head.bias": torch.zeros(1)}
    with pytest.raises(WrongTensors, match=r"does not use .*'vpm.head.bias'"):
        VisionEncoder.from_tensors(VISION_SIZES, surplus, CPU, torch.float32)
    fewer = replace(VISION_SIZES, queries=32)
    with pytest.raises(WrongTensors, match=r"resampler.query has shape \[64, 128\]"):
        VisionEncoder.from_tensors(fewer, whole, CPU, torch.float32)
