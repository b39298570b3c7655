"""The vocoder's arithmetic: mel to pitch, pitch to a source of harmonics, both to a waveform.

1. A frame of mel is 480 samples at 24 kHz: three stages that lengthen by 8, 5 and 3, and an inverse
   spectrogram whose frames are 4 samples apart.
2. Each harmonic's phase begins at 0 with every call, so the source of a call does not continue that
   of the call before; what continues is put in its place by who calls.
3. Convolutions look both ways. Mel of another length gives other samples at its edges: rows of a
   batch have one length and are never filled up.
4. The published code draws a start phase for each harmonic, and adds it to a sample that it then
   does not read. So there is none.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import torch
import torch.nn.functional as F

from stages.minicpmo.named_tensors import Linear, NamedTensors, WrongTensors

FRAME_SAMPLES: Final = 480
RATE_HZ: Final = 24_000
PREFIX: Final = "generator."

_LENGTHEN: Final = (8, 5, 3)
_WIDTHS: Final = (16, 11, 7)
"""Of the convolutions that lengthen."""
_DILATIONS: Final = (1, 3, 5)
_BLOCK_WIDTHS: Final = (3, 7, 11)
_SOURCE_WIDTHS: Final = (7, 7, 11)
_BINS: Final = 16
_HOP: Final = 4
_PITCH_LAYERS: Final = 5
_SLOPE: Final = 0.1
_LAST_SLOPE: Final = 0.01
_LOUDEST: Final = 0.99
_MAGNITUDE: Final = 100.0
_VOICED_HZ: Final = 10.0
_SINE: Final = 0.1
_VOICED_NOISE: Final = 0.003
_UNVOICED_NOISE: Final = _SINE / 3
_TINY: Final = 1e-9
_PLACES: Final = range(len(_LENGTHEN))

_Convolution = tuple[torch.Tensor, torch.Tensor]
_Bend = tuple[torch.Tensor, torch.Tensor]
"""A steepness a, and 1 / a."""


@dataclass(frozen=True, slots=True, eq=False)
class Residual:
    """Three pairs of convolutions, the first of each with holes; each is added to its input."""

    pairs: tuple[tuple[_Bend, _Convolution, _Bend, _Convolution], ...]
    """Each convolution behind what bends its input."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return [batch, channels, columns] for the same."""
        for dilation, (bend_first, first, bend_second, second) in zip(
            _DILATIONS, self.pairs, strict=True
        ):
            pad = (first[0].shape[2] - 1) // 2
            y = F.conv1d(_bent(x, bend_first), *first, padding=pad * dilation, dilation=dilation)
            x = F.conv1d(_bent(y, bend_second), *second, padding=pad) + x
        return x


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """One lengthening, the source's share in it, and what shapes the sum."""

    lengthen: _Convolution
    source: _Convolution
    source_shape: Residual
    shapes: tuple[Residual, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Hift:
    """The whole network, in float32."""

    pitch_layers: tuple[_Convolution, ...]
    pitch_out: Linear
    harmonics: Linear
    enter: _Convolution
    stages: tuple[Stage, ...]
    leave: _Convolution
    window: torch.Tensor

    @property
    def harmonic_count(self) -> int:
        """Sines in the source: the pitch itself and its multiples."""
        return self.harmonics.weight.shape[1]

    def pitch(self, mel: torch.Tensor) -> torch.Tensor:
        """Return [batch, frames] in Hz for [batch, bands, frames]."""
        for layer in self.pitch_layers:
            mel = F.elu(F.conv1d(mel, *layer, padding=1))
        return self.pitch_out(mel.transpose(1, 2))[..., 0].abs()

    def source(self, pitch: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Return [batch, samples] for a pitch and noise [batch, samples, harmonics]."""
        numbers = torch.arange(1, self.harmonic_count + 1, device=pitch.device)
        turns = (pitch[:, None] * numbers[:, None]) / RATE_HZ % 1
        phase = turns.cumsum(-1) * (2 * math.pi) * FRAME_SAMPLES
        phase = F.interpolate(phase, scale_factor=FRAME_SAMPLES, mode="linear")
        voiced = (pitch > _VOICED_HZ).repeat_interleave(FRAME_SAMPLES, 1)[..., None].float()
        loud = voiced * _VOICED_NOISE + (1 - voiced) * _UNVOICED_NOISE
        waves = phase.sin().transpose(1, 2) * _SINE
        return torch.tanh(self.harmonics(waves * voiced + loud * noise))[..., 0]

    def wave(self, mel: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        """Return [batch, samples], within ±0.99, for mel and its source."""
        spectrum = torch.stft(source, _BINS, _HOP, window=self.window, return_complex=True)
        sources = torch.cat([spectrum.real, spectrum.imag], 1)
        x = F.conv1d(mel, *self.enter, padding=3)
        for place, stage in enumerate(self.stages):
            x = self._stage(place, stage, F.leaky_relu(x, _SLOPE), sources)
        x = F.conv1d(F.leaky_relu(x, _LAST_SLOPE), *self.leave, padding=3)
        half = _BINS // 2 + 1
        size, angle = x[:, :half].exp().clip(max=_MAGNITUDE), x[:, half:].sin()
        whole = torch.complex(size * angle.cos(), size * angle.sin())
        wave = torch.istft(whole, _BINS, _HOP, window=self.window)
        return wave.clamp(-_LOUDEST, _LOUDEST)

    def _stage(
        self, place: int, stage: Stage, x: torch.Tensor, sources: torch.Tensor
    ) -> torch.Tensor:
        rate, width = _LENGTHEN[place], _WIDTHS[place]
        x = F.conv_transpose1d(x, *stage.lengthen, stride=rate, padding=(width - rate) // 2)
        if place == _PLACES[-1]:
            x = F.pad(x, (1, 0), mode="reflect")
        # The source is as dense as the last stage; before it, it is thinned to the stage's rate.
        thin = math.prod(_LENGTHEN[place + 1 :])
        y = F.conv1d(sources, *stage.source, stride=thin, padding=thin // 2)
        x = x + stage.source_shape(y)
        shaped = [shape(x) for shape in stage.shapes]
        return sum(shaped[1:], shaped[0]) / len(shaped)


def take_hift(tensors: Mapping[str, torch.Tensor], device: torch.device) -> Hift:
    """Build the network of what `hift.pt` holds; raise WrongTensors, which names what is wrong."""
    named = NamedTensors(tensors, device, torch.float32)
    enter = tensors.get(f"{PREFIX}conv_pre.parametrizations.weight.original1")
    harmonics = tensors.get(f"{PREFIX}m_source.l_linear.weight")
    pitch = tensors.get(f"{PREFIX}f0_predictor.classifier.weight")
    if enter is None or harmonics is None or pitch is None:
        raise WrongTensors(f"the checkpoint lacks {PREFIX}conv_pre, m_source or f0_predictor")
    wide, bands = enter.shape[0], enter.shape[1]
    channels = [wide >> place for place in range(len(_LENGTHEN) + 1)]
    pitch_wide = pitch.shape[1]
    pitch_sizes = [bands, *[pitch_wide] * _PITCH_LAYERS]
    hift = Hift(
        pitch_layers=tuple(
            _normed(named, f"f0_predictor.condnet.{2 * i}", (out, into, 3), out)
            for i, (into, out) in enumerate(pairwise(pitch_sizes))
        ),
        pitch_out=named.linear(f"{PREFIX}f0_predictor.classifier", 1, pitch_wide),
        harmonics=named.linear(f"{PREFIX}m_source.l_linear", 1, harmonics.shape[1]),
        enter=_normed(named, "conv_pre", (wide, bands, 7), wide),
        stages=tuple(_take_stage(named, place, channels) for place in _PLACES),
        leave=_normed(named, "conv_post", (_BINS + 2, channels[-1], 7), _BINS + 2),
        window=torch.hann_window(_BINS, device=device),
    )
    named.finish()
    return hift


def _take_stage(named: NamedTensors, place: int, channels: list[int]) -> Stage:
    into, out = channels[place : place + 2]
    thin = math.prod(_LENGTHEN[place + 1 :])
    down = f"{PREFIX}source_downs.{place}"
    width = 1 if thin == 1 else 2 * thin
    blocks = len(_BLOCK_WIDTHS)
    return Stage(
        lengthen=_normed(named, f"ups.{place}", (into, out, _WIDTHS[place]), out),
        source=(
            named.take(f"{down}.weight", (out, _BINS + 2, width)),
            named.take(f"{down}.bias", (out,)),
        ),
        source_shape=_residual(named, f"source_resblocks.{place}", out, _SOURCE_WIDTHS[place]),
        shapes=tuple(
            _residual(named, f"resblocks.{place * blocks + i}", out, _BLOCK_WIDTHS[i])
            for i in range(blocks)
        ),
    )


def _residual(named: NamedTensors, name: str, size: int, width: int) -> Residual:
    def bend(group: int, place: int) -> _Bend:
        alpha = named.take(f"{PREFIX}{name}.activations{group}.{place}.alpha", (size,))[:, None]
        return alpha, 1 / (alpha + _TINY)

    def convolution(group: int, place: int) -> _Convolution:
        return _normed(named, f"{name}.convs{group}.{place}", (size, size, width), size)

    return Residual(
        tuple(
            (bend(1, i), convolution(1, i), bend(2, i), convolution(2, i))
            for i in range(len(_DILATIONS))
        )
    )


def _normed(named: NamedTensors, name: str, shape: tuple[int, int, int], out: int) -> _Convolution:
    """Return weight and bias of a convolution that is stored as lengths and directions."""
    stored = f"{PREFIX}{name}.parametrizations.weight.original"
    length = named.take(f"{stored}0", (shape[0], 1, 1))
    direction = named.take(f"{stored}1", shape)
    # What torch's own weight normalisation calls: another order of the same sum is a last digit in
    # a pitch, and a phase shows that 480 times larger.
    weight = torch._weight_norm(direction, length, 0)  # noqa: SLF001
    return weight, named.take(f"{PREFIX}{name}.bias", (out,))


def _bent(x: torch.Tensor, bend: _Bend) -> torch.Tensor:
    """Return x + sin²(a x) / a."""
    steepness, inverse = bend
    return torch.addcmul(x, inverse, (x * steepness).sin().square())
