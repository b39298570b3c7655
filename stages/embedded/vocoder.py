"""Acoustic frames become sound, a few frames at a time: hibari's synthesis, made to stream.

A frame is a spectrum every 12.5 ms, in three layers that are added up: the pulse train of the
voice, filtered; noise, shaped; and a part with phases of its own. Overlap-add joins the frames.

Rule 1: reading a sentence in pieces of any size gives the same samples as reading it at once.
Rule 2: two frames beyond a piece are needed to finish it; they are at hand, because the acoustic
        model makes all frames of a sentence together.
Rule 3: what lives between two reads is here and nowhere else: the position, three hops of
        unfinished overlap, and the noise generator, which runs on through the turn.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from session.unit import OUTPUT_RATE_HZ

HOP: Final = 300
"""Samples per frame: 80 frames a second."""
BINS: Final = 601

_FFT: Final = 1200
_OVERLAP: Final = _FFT // HOP
_LOOK_AHEAD: Final = _OVERLAP // 2
_VOICED_HZ: Final = 40.0
"""Lower pitch means no voice."""
_HIGHEST_HARMONIC_HZ: Final = 11_000.0
_PI: Final = np.float32(np.pi)
_LOUDEST: Final = 7.0
"""Bound on a logarithmic magnitude."""

Floats = npt.NDArray[np.float32]
Complexes = npt.NDArray[np.complex64]

_WINDOW: Final = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_FFT) / _FFT)).astype(np.float32)
_PULSE_WINDOW: Final = (_WINDOW / HOP).astype(np.float32)
_WEIGHTS: Final = np.square(_WINDOW).reshape(_OVERLAP, HOP)
"""What each quarter of a frame adds to the overlap's total weight."""


_TOWARDS_NEXT: Final = (((np.arange(HOP) + 0.5) / HOP - 0.5) % 1.0).astype(np.float32)
"""How far each sample of a hop lies from the frame centre before it to the one after it."""


@dataclass(frozen=True, slots=True)
class Frames:
    """Acoustic frames of one sentence; spectra are [BINS, frames], pitch is [frames] in Hz."""

    voice_gain: Floats
    voice_phase: Floats
    noise_gain: Floats
    free_gain: Floats
    free_phase: Floats
    pitch: Floats

    @property
    def count(self) -> int:
        """Number of frames, which is also the number of hops of sound."""
        return len(self.pitch)


class Vocoder:
    """The sound of one sentence, read in order."""

    def __init__(self, frames: Frames, noise: np.random.Generator | None) -> None:
        self._frames = frames
        self._noise = noise
        self._pulses = np.pad(pulse_train(frames.pitch), _FFT // 2, mode="reflect")
        self._read = 0
        """Hops handed out."""
        self._added = 0
        """Frames added to the overlap."""
        self._tail = np.zeros((_OVERLAP - 1, HOP), np.float32)
        """Hops that have begun but wait for later frames."""

    @property
    def hops_left(self) -> int:
        """Hops of sound that have not been read."""
        return self._frames.count - self._read

    def read(self, hops: int) -> Floats:
        """Return the next `hops` hops of samples, fewer at the end."""
        end = min(self._read + hops, self._frames.count)
        last_frame = min(end + _LOOK_AHEAD, self._frames.count)
        sound = self._add_frames(last_frame)
        # The first hops of the overlap lie before the sentence: frames are centred.
        first = self._read + _LOOK_AHEAD - self._added
        block = sound[first : first + end - self._read]
        weighted = block / self._weights(self._read, end)
        self._tail = sound[last_frame - self._added :]
        self._added, self._read = last_frame, end
        samples: Floats = weighted.reshape(-1)
        return samples

    def _add_frames(self, end: int) -> Floats:
        """Return the overlap from hop `_added` on, with the frames up to `end` in it."""
        begin, count = self._added, end - self._added
        sound = np.zeros((count + _OVERLAP - 1, HOP), np.float32)
        sound[: len(self._tail)] = self._tail
        if count:
            pieces = np.fft.irfft(self._spectra(begin, end), n=_FFT, axis=1) * _WINDOW
            quarters = pieces.reshape(count, _OVERLAP, HOP)
            for quarter in range(_OVERLAP):
                sound[quarter : quarter + count] += quarters[:, quarter]
        return sound

    def _spectra(self, begin: int, end: int) -> Complexes:
        """Return the summed layers of some frames, [frames, BINS]."""
        frames = self._frames
        span = self._pulses[begin * HOP : (end - 1) * HOP + _FFT]
        windows = np.lib.stride_tricks.sliding_window_view(span, _FFT)[::HOP] * _PULSE_WINDOW
        part = np.s_[:, begin:end]
        turned = _polar(frames.voice_gain[part], np.tanh(frames.voice_phase[part]) * _PI)
        spectra = np.fft.rfft(windows, axis=1).astype(np.complex64, copy=False) * turned.T
        spectra += _polar(frames.free_gain[part], frames.free_phase[part]).T
        if self._noise is not None:
            # Drawn frame by frame, so that the pieces' sizes do not matter.
            drawn = self._noise.standard_normal((end - begin, 2 * BINS), dtype=np.float32)
            spectra += drawn.view(np.complex64) * _magnitude(frames.noise_gain[part]).T
        return spectra

    def _weights(self, begin: int, end: int) -> Floats:
        """Return the summed window weights of output hops; less at both ends of the sentence."""
        hops = np.arange(begin, end) + _LOOK_AHEAD
        total = np.zeros((end - begin, HOP), np.float32)
        for quarter in range(_OVERLAP):
            frame = hops - quarter
            is_there = (frame >= 0) & (frame < self._frames.count)
            total += is_there[:, None] * _WEIGHTS[quarter]
        return np.maximum(total, np.float32(1e-11))


def pulse_train(pitch: Floats) -> Floats:
    """Return the voice's excitation: all harmonics up to 11 kHz at equal strength, as one sum.

    Pitch is interpolated linearly between frame centres; unvoiced stretches are silent.
    """
    edged = np.pad(pitch, 1, mode="edge")
    left = (np.arange(2 * len(pitch)) + 1) // 2
    towards = np.tile(_TOWARDS_NEXT.reshape(2, -1), (len(pitch), 1))
    hertz = edged[left, None] * (1 - towards) + edged[left + 1, None] * towards
    hertz = hertz.reshape(-1)
    is_voiced = hertz > _VOICED_HZ
    hertz = np.maximum(hertz, np.float32(_VOICED_HZ))
    cycles = np.cumsum(hertz, dtype=np.float64) / OUTPUT_RATE_HZ
    phase = (np.modf(cycles)[0] * 2 * np.pi).astype(np.float32)
    # cos(p) + cos(2 p) + ... + cos(n p) in closed form; where its divisor vanishes, its limit.
    order = np.floor(_HIGHEST_HARMONIC_HZ / hertz) + np.float32(0.5)
    divisor = 2 * np.sin(phase / 2)
    is_peak = np.abs(divisor) <= 2e-3
    quotient = np.sin(order * phase) / np.where(is_peak, np.float32(1), divisor)
    train = np.where(is_peak, order, quotient) - np.float32(0.5)
    return np.where(is_voiced, train, np.float32(0)).astype(np.float32)


def _magnitude(gain: Floats) -> Floats:
    return np.exp(np.minimum(gain, np.float32(_LOUDEST)))


def _polar(gain: Floats, phase: Floats) -> Complexes:
    turned = np.empty(gain.shape, np.complex64)
    turned.real = np.cos(phase)
    turned.imag = np.sin(phase)
    turned *= _magnitude(gain)
    return turned
