"""The log-mel spectrogram that Whisper and its descendants hear, in numpy alone.

25 ms Hann windows every 10 ms, centred with reflection at both ends, 80 triangular bands (or others
that are given) on Slaney's mel scale, base-10 logarithm, limited to 8 decades below the loudest
value.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from session.unit import INPUT_RATE_HZ

BANDS: Final = 80
HOP: Final = 160
DYNAMIC_RANGE: Final = 8.0
"""Decades."""

FFT: Final = 400
_LINEAR_HZ_PER_MEL: Final = 200 / 3
"""Slaney's scale is linear up to 1 kHz, and from there 27 mels to each factor of 6.4."""
_BREAK_HZ: Final = 1000.0
_LOG_STEP: Final = np.log(6.4) / 27

Floats = npt.NDArray[np.float32]


def log_mel(audio: Floats, filters: Floats | None = None) -> Floats:
    """Return [BANDS, len(audio) // HOP] features of samples in -1..1, or as many as `filters` has.

    `filters` is [bands, FFT // 2 + 1].
    """
    decades = mel_decades(audio, filters)
    return as_features(decades, lowest=decades.max() - DYNAMIC_RANGE)


def mel_decades(audio: Floats, filters: Floats | None = None) -> Floats:
    """Return the [BANDS, len(audio) // HOP] logarithms of power, none below -10."""
    padded = np.pad(audio, FFT // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, FFT)[::HOP][:-1]
    # A band 8 decades below the loudest would drown in the rounding of a float32 transform.
    power = (np.abs(np.fft.rfft(frames * _WINDOW, axis=1)) ** 2).astype(np.float32)
    # Not a matrix product: the threads of a BLAS would spin longer than this takes.
    bands = np.einsum("bk,fk->bf", _FILTERS if filters is None else filters, power)
    decades: Floats = np.log10(np.maximum(bands, np.float32(1e-10)))
    return decades


def as_features(decades: Floats, *, lowest: float) -> Floats:
    """Return what a model is given, from decades raised to at least `lowest`."""
    features: Floats = ((np.maximum(decades, np.float32(lowest)) + 4.0) / 4.0).astype(np.float32)
    return features


def slaney_filters(bands: int, *, fft: int, rate_hz: int, top_hz: float) -> Floats:
    """Return the [bands, fft // 2 + 1] triangles from 0 to `top_hz`, each of unit area in Hz.

    `top_hz` is above 1 kHz, where the scale is logarithmic.
    """
    top_mel = _BREAK_HZ / _LINEAR_HZ_PER_MEL + np.log(top_hz / _BREAK_HZ) / _LOG_STEP
    edges = _mel_to_hz(np.linspace(0.0, top_mel, bands + 2))
    low, centre, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    bins = np.linspace(0.0, rate_hz / 2, fft // 2 + 1)[None, :]
    rising = (bins - low) / (centre - low)
    falling = (high - bins) / (high - centre)
    triangles = np.maximum(0.0, np.minimum(rising, falling)) * 2 / (high - low)
    return triangles.astype(np.float32)


def _mel_to_hz(mel: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    break_mel = _BREAK_HZ / _LINEAR_HZ_PER_MEL
    linear = mel * _LINEAR_HZ_PER_MEL
    return np.where(mel < break_mel, linear, _BREAK_HZ * np.exp(_LOG_STEP * (mel - break_mel)))


_WINDOW: Final = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FFT) / FFT)
_FILTERS: Final = slaney_filters(BANDS, fft=FFT, rate_hz=INPUT_RATE_HZ, top_hz=INPUT_RATE_HZ / 2)
