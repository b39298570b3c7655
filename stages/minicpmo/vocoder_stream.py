"""Mel to waveform, a call at a time: what a call hands to the next one of its turn.

Rule 1: a call's mel stands behind the last 8 frames of the call before, and the source of its first
        3840 samples is the one that was kept. (Vectors, section 7.)
Rule 2: its first 3840 samples fade in over the samples that the call before held back, which fade
        out, with the two halves of a Hamming window.
Rule 3: the last 3840 samples are held back, except at the last call of a turn. So a turn's chunks
        together are exactly as long as its mel.
Rule 4: a call makes a new state; the old one stays as it was.
Rule 5: calls of a batch are as long as each other, so that no row is filled up.
Rule 6: a batch may be filled up with its last row to a size that was there before: a GPU's library
        looks for its way through each convolution anew for each size, which takes longer than many
        calls.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import torch

from stages.minicpmo.hift import FRAME_SAMPLES
from stages.minicpmo.schedule import HELD_BACK_SAMPLES

KEPT_FRAMES: Final = HELD_BACK_SAMPLES // FRAME_SAMPLES
GPU_BATCHES: Final = (1, 2, 4, 8, 16, 32, 64)

Noise = Callable[[int, int, tuple[int, int]], torch.Tensor]
"""Normal noise by a turn's seed, the call's number in its turn, and [samples, harmonics]."""


class VocoderNetwork(Protocol):
    """What makes a waveform of mel, all of it at once (`stages.minicpmo.hift`)."""

    @property
    def harmonic_count(self) -> int:
        """Harmonics in a source."""
        ...

    def pitch(self, mel: torch.Tensor) -> torch.Tensor:
        """Return [batch, frames] in Hz for [batch, bands, frames]."""
        ...

    def source(self, pitch: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Return [batch, samples] for a pitch and noise [batch, samples, harmonics]."""
        ...

    def wave(self, mel: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        """Return [batch, samples], in memory of its own, for mel and its source."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class VocoderState:
    """What is kept of the call before; of nothing, at a turn's beginning."""

    seed: int
    """Decides the turn's noise."""
    calls: int
    mel: torch.Tensor
    """[bands, 8 or 0]"""
    source: torch.Tensor
    """[3840 or 0]"""
    held_back: torch.Tensor
    """[3840 or 0]"""


@dataclass(frozen=True, slots=True, eq=False)
class VocoderCallMel:
    """One turn's share of a batch."""

    state: VocoderState
    mel: torch.Tensor
    """float32 [bands, frames]"""
    is_last: bool

    @property
    def length(self) -> int:
        """Frames that are computed; calls of one length make a batch."""
        return self.state.mel.shape[1] + self.mel.shape[1]


@dataclass(frozen=True, slots=True, eq=False)
class Sound:
    """What a call yields."""

    wave: torch.Tensor
    """float32 [samples] within ±1"""
    state: VocoderState


class VocoderStream:
    """The vocoder on one device. It holds no turn."""

    def __init__(
        self,
        network: VocoderNetwork,
        bands: int,
        noise: Noise,
        device: torch.device,
        batches: Sequence[int] = (),
    ) -> None:
        """`batches` are the sizes, ascending, that batches are filled up to."""
        self._batches = batches
        self._network = network
        self._bands = bands
        self._noise = noise
        self._device = device
        window = torch.from_numpy(np.hamming(2 * HELD_BACK_SAMPLES).astype(np.float32))
        self._fade_in, self._fade_out = window.to(self._device).chunk(2)

    def begin(self, seed: int) -> VocoderState:
        """Return the state at a turn's beginning."""
        mel = torch.zeros((self._bands, 0), device=self._device)
        return VocoderState(seed, 0, mel, mel[0], mel[0])

    def run(self, calls: Sequence[VocoderCallMel]) -> list[Sound]:
        """Return what each turn's mel sounds like.

        ValueError if the calls' lengths differ, or one is too short to hold anything back.
        """
        if len({call.length for call in calls}) != 1:
            raise ValueError("the calls of a batch have one length")
        if any(not call.is_last and call.mel.shape[1] < KEPT_FRAMES for call in calls):
            raise ValueError("a call is too short to hold anything back")
        with torch.inference_mode():
            size = next((one for one in self._batches if one >= len(calls)), len(calls))
            filled = [*calls, *[calls[-1]] * (size - len(calls))]
            mel = torch.stack([torch.cat([call.state.mel, call.mel], 1) for call in filled])
            source = self._sources(calls, mel)
            waves = self._network.wave(mel, source)
            return [self._sound(call, mel[i], source[i], waves[i]) for i, call in enumerate(calls)]

    def _sources(self, calls: Sequence[VocoderCallMel], mel: torch.Tensor) -> torch.Tensor:
        shape = (mel.shape[2] * FRAME_SAMPLES, self._network.harmonic_count)
        noise = [self._noise(call.state.seed, call.state.calls, shape) for call in calls]
        noise += [noise[-1]] * (len(mel) - len(calls))
        source = self._network.source(self._network.pitch(mel), torch.stack(noise).to(self._device))
        for row, call in zip(source, calls, strict=False):
            row[: len(call.state.source)] = call.state.source
        return source

    def _sound(
        self, call: VocoderCallMel, mel: torch.Tensor, source: torch.Tensor, wave: torch.Tensor
    ) -> Sound:
        before = call.state.held_back
        if len(before):
            wave[: len(before)] = wave[: len(before)] * self._fade_in + before * self._fade_out
        state = VocoderState(
            call.state.seed,
            call.state.calls + 1,
            mel[:, -KEPT_FRAMES:].clone(),
            source[-HELD_BACK_SAMPLES:].clone(),
            wave[-HELD_BACK_SAMPLES:].clone(),
        )
        return Sound(wave if call.is_last else wave[:-HELD_BACK_SAMPLES], state)


def drawn_noise(device: torch.device) -> Noise:
    """Return noise that seed (0 to 2**64 - 1) and call decide, whoever else is in the batch."""

    def draw(seed: int, call: int, shape: tuple[int, int]) -> torch.Tensor:
        # Both in 32 bits: a CPU's generator does not look at more of a seed.
        mixed = zlib.crc32(call.to_bytes(8, "big"), zlib.crc32(seed.to_bytes(8, "big")))
        generator = torch.Generator(device).manual_seed(mixed)
        return torch.randn(shape, generator=generator, device=device)

    return draw


def batches_on(device: torch.device, most: int) -> Sequence[int]:
    """Return the sizes that batches of up to `most` calls are filled up to there."""
    if device.type != "cuda":
        return ()
    return (*(size for size in GPU_BATCHES if size < most), most)


def no_noise(seed: int, call: int, shape: tuple[int, int]) -> torch.Tensor:
    """Return zeros, as the recordings were made with."""
    del seed, call
    return torch.zeros(shape)


def vocoder_state_bytes(bands: int) -> int:
    """Return what one turn's memory takes from its second call on: float32."""
    return 4 * (bands * KEPT_FRAMES + 2 * HELD_BACK_SAMPLES)
