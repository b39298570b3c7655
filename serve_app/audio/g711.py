"""G.711 companding (ITU-T Rec. G.711) between 16-bit samples and 8-bit codes, by table."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

_ULAW_BIAS: Final = 132
_ULAW_CLIP: Final = 32_635
_ALAW_TOGGLE: Final = 0x55


def ulaw_decode(codes: bytes) -> NDArray[np.int16]:
    """Expand µ-law codes to 16-bit samples."""
    return _ULAW_SAMPLES[np.frombuffer(codes, np.uint8)]


def alaw_decode(codes: bytes) -> NDArray[np.int16]:
    """Expand A-law codes to 16-bit samples."""
    return _ALAW_SAMPLES[np.frombuffer(codes, np.uint8)]


def ulaw_encode(samples: NDArray[np.int16]) -> bytes:
    """Compress 16-bit samples to µ-law codes."""
    return _ULAW_CODES[samples.view(np.uint16)].tobytes()


def alaw_encode(samples: NDArray[np.int16]) -> bytes:
    """Compress 16-bit samples to A-law codes."""
    return _ALAW_CODES[samples.view(np.uint16)].tobytes()


def _ulaw_samples() -> NDArray[np.int16]:
    codes = ~np.arange(256, dtype=np.int32) & 0xFF  # µ-law travels with all bits inverted
    exponent, mantissa = (codes >> 4) & 7, codes & 15
    magnitude = ((2 * mantissa + 33) << (exponent + 2)) - _ULAW_BIAS
    return np.where(codes & 0x80, -magnitude, magnitude).astype(np.int16)


def _alaw_samples() -> NDArray[np.int16]:
    codes = np.arange(256, dtype=np.int32) ^ _ALAW_TOGGLE
    exponent, mantissa = (codes >> 4) & 7, codes & 15
    linear = (2 * mantissa + 1) << 3  # the lowest segment is not companded
    magnitude = np.where(exponent == 0, linear, (2 * mantissa + 33) << (exponent + 2))
    return np.where(codes & 0x80, magnitude, -magnitude).astype(np.int16)


def _exponent(magnitude: NDArray[np.int32]) -> NDArray[np.int32]:
    """Segment of each magnitude: the position of its highest bit above bit 7, at least 0."""
    return np.maximum(np.frexp(magnitude.astype(np.float64))[1].astype(np.int32) - 8, 0)


def _ulaw_codes() -> NDArray[np.uint8]:
    samples = _every_sample()
    magnitude = np.minimum(np.abs(samples), _ULAW_CLIP) + _ULAW_BIAS
    exponent = _exponent(magnitude)
    mantissa = (magnitude >> (exponent + 3)) & 15
    sign = np.where(samples < 0, 0x80, 0)
    codes: NDArray[np.uint8] = (~(sign | exponent << 4 | mantissa) & 0xFF).astype(np.uint8)
    return codes


def _alaw_codes() -> NDArray[np.uint8]:
    samples = _every_sample()
    magnitude = np.where(samples < 0, ~samples, samples)
    exponent = _exponent(magnitude)
    mantissa = (magnitude >> (np.maximum(exponent, 1) + 3)) & 15
    sign = np.where(samples < 0, 0, 0x80)
    toggled = (sign | exponent << 4 | mantissa) ^ _ALAW_TOGGLE
    codes: NDArray[np.uint8] = toggled.astype(np.uint8)
    return codes


def _every_sample() -> NDArray[np.int32]:
    """Each 16-bit sample at the index of its unsigned reading."""
    return np.arange(65_536, dtype=np.uint16).view(np.int16).astype(np.int32)


_ULAW_SAMPLES: Final = _ulaw_samples()
_ALAW_SAMPLES: Final = _alaw_samples()
_ULAW_CODES: Final = _ulaw_codes()
_ALAW_CODES: Final = _alaw_codes()
