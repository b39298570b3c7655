"""The log-mel spectrogram that Whisper and its descendants hear, in numpy alone.

25 ms Hann windows every 10 ms, centred with reflection at both ends, 80 triangular bands on
Slaney's mel scale, base-10 logarithm, limited to 8 decades below the loudest value.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from session.unit import INPUT_RATE_HZ

BANDS: Final = 80
HOP: Final = 160
DYNAMIC_RANGE: Final = 8.0
"""Decades."""

_FFT: Final = 400
_LINEAR_HZ_PER_MEL: Final = 200 / 3
"""Slaney's scale is linear up to 1 kHz, and from there 27 mels to each factor of 6.4."""
_BREAK_HZ: Final = 1000.0
_LOG_STEP: Final = np.log(6.4) / 27

Floats = npt.NDArray[np.float32]


def log_mel(audio: Floats) -> Floats:
    """Return [BANDS, len(audio) // HOP] features of samples in -1..1."""
    decades = mel_decades(audio)
    return as_features(decades, lowest=decades.max() - DYNAMIC_RANGE)


def mel_decades(audio: Floats) -> Floats:
    """Return the [BANDS, len(audio) // HOP] logarithms of power, none below -10."""
    padded = np.pad(audio, _FFT // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, _FFT)[::HOP][:-1]
    # A band 8 decades below the loudest would drown in the rounding of a float32 transform.
    power = (np.abs(np.fft.rfft(frames * _WINDOW, axis=1)) ** 2).astype(np.float32)
    # Not a matrix product: the threads of a BLAS would spin longer than this takes.
    bands = np.einsum("bk,fk->bf", _FILTERS, power)
    decades: Floats = np.log10(np.maximum(bands, np.float32(1e-10)))
    return decades


def as_features(decades: Floats, *, lowest: float) -> Floats:
    """Return what a model is given, from decades raised to at least `lowest`."""
    features: Floats = ((np.maximum(decades, np.float32(lowest)) + 4.0) / 4.0).astype(np.float32)
    return features


def _mel_to_hz(mel: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    break_mel = _BREAK_HZ / _LINEAR_HZ_PER_MEL
    linear = mel * _LINEAR_HZ_PER_MEL
    return np.where(mel < break_mel, linear, _BREAK_HZ * np.exp(_LOG_STEP * (mel - break_mel)))


def _filters() -> Floats:
    """Return the [BANDS, bins] triangles, each of unit area in Hz."""
    nyquist = INPUT_RATE_HZ / 2
    top_mel = _BREAK_HZ / _LINEAR_HZ_PER_MEL + np.log(nyquist / _BREAK_HZ) / _LOG_STEP
    edges = _mel_to_hz(np.linspace(0.0, top_mel, BANDS + 2))
    low, centre, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    bins = np.linspace(0.0, nyquist, _FFT // 2 + 1)[None, :]
    rising = (bins - low) / (centre - low)
    falling = (high - bins) / (high - centre)
    triangles = np.maximum(0.0, np.minimum(rising, falling)) * 2 / (high - low)
    return triangles.astype(np.float32)


_WINDOW: Final = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_FFT) / _FFT)
_FILTERS: Final = _filters()
