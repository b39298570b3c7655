"""The flow: codes to mel, a call at a time, for many turns at once.

Rule 1: mel is found by walking from noise in steps of Euler's method, at times 1 - cos(pi/2 i/n).
        The direction is 1.7 times that with a condition less 0.7 times that without (mu, speaker
        and voice are 0). (Vectors, section 7.)
Rule 2: noise is one fixed table; a call's columns begin at the count of frames remembered.
Rule 3: turns in a batch do not see each other. What one remembers less than another is filled up
        and hidden by a mask, and numbers that are not finite are told for each turn.
Rule 4: the calls of a batch have one length and one end; who has mixed ones makes two batches.
Rule 5: the walk itself is in float32 whatever the network's precision is.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import torch
import torch.nn.functional as F

from stages.minicpmo.conformer import Conformer, ConformerRows, Past, take_conformer
from stages.minicpmo.flow_estimator import (
    Direction,
    Estimator,
    EstimatorPast,
    take_estimator,
)
from stages.minicpmo.flow_sizes import FlowSizes
from stages.minicpmo.flow_state import FlowState, NewRows, empty_state, successor
from stages.minicpmo.named_tensors import Linear, NamedTensors
from stages.minicpmo.schedule import LOOK_AHEAD

GUIDANCE: Final = 0.7
"""How much further than the conditioned direction a step goes, away from the other."""


@dataclass(frozen=True, slots=True, eq=False)
class FlowCall:
    """One turn's share of a batch."""

    codes: tuple[int, ...]
    """The last three are only looked at, unless it is the turn's last call."""
    speaker: torch.Tensor
    """[bands] What `Flow.speaker` returns."""
    state: FlowState


@dataclass(frozen=True, slots=True, eq=False)
class FlowMel:
    """What became of it."""

    mel: torch.Tensor
    """float32 [bands, frames]"""
    state: FlowState
    new: NewRows
    """What `state` was made of, in the batch's memory; not to be kept."""


@dataclass(frozen=True, slots=True, eq=False)
class FlowParts:
    """The networks, and what stands between them."""

    conformer: Conformer
    to_mel: Linear
    estimator: Estimator
    speaker: Linear


class Flow:
    """The network on one device, for one count of steps. It holds no turn."""

    def __init__(self, sizes: FlowSizes, parts: FlowParts, steps: int, noise: torch.Tensor) -> None:
        """`noise` is [bands, columns]; a turn that needs more columns is refused."""
        self.sizes = sizes
        self.steps = steps
        self._parts = parts
        weight = parts.to_mel.weight
        self._device, self._dtype = weight.device, weight.dtype
        self._noise = noise.to(self._device, torch.float32)
        # In float32, as published: a time is taken times 1000, which shows the last digit.
        way = 1 - torch.cos(torch.linspace(0, 1, steps + 1) * (math.pi / 2))
        self._way = [float(time) for time in way]
        with torch.inference_mode():
            self._times = parts.estimator.at_times(self._way[:-1])

    @classmethod
    def from_tensors(
        cls,
        tensors: Mapping[str, torch.Tensor],
        noise: torch.Tensor,
        steps: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> "Flow":
        """Build it of what `flow.pt` holds; raise WrongTensors, which names what does not fit."""
        sizes = FlowSizes.of(tensors)
        if sizes.look_ahead != LOOK_AHEAD:
            raise ValueError(f"a flow that looks {sizes.look_ahead} codes ahead is not known here")
        named = NamedTensors(tensors, device, dtype)
        parts = take_flow(sizes, named)
        named.finish()
        return cls(sizes, parts, steps, noise)

    def speaker(self, embedding: torch.Tensor) -> torch.Tensor:
        """Return [bands] for a speaker's embedding."""
        with torch.inference_mode():
            on_device = embedding.to(self._device, torch.float32)[None]
            return self._parts.speaker(F.normalize(on_device, dim=1).to(self._dtype))[0]

    def begin(
        self, codes: Sequence[int], voice_mel: torch.Tensor, speaker: torch.Tensor
    ) -> FlowState:
        """Return the state in which every turn of a voice begins.

        `codes` are the voice's and three of silence, `voice_mel` is [bands, frames] with two frames
        a code; ValueError for another count.
        """
        return self.one_pass(codes, voice_mel, speaker, is_last=False).state

    def one_pass(
        self,
        codes: Sequence[int],
        voice_mel: torch.Tensor,
        speaker: torch.Tensor,
        *,
        is_last: bool,
    ) -> FlowMel:
        """Walk over all codes at once, remembering nothing; the voice's mel stands in front.

        ValueError if there are fewer frames than the voice's mel has.
        """
        frames = voice_mel.shape[1]
        spoken = self.sizes.stride * (len(codes) - (0 if is_last else LOOK_AHEAD))
        if spoken < frames or (spoken != frames and not is_last):
            raise ValueError(f"{frames} frames of a voice do not fit {len(codes)} codes")
        state = empty_state(self.sizes, self.steps, frames, self._device, self._dtype)
        condition = F.pad(voice_mel.to(self._device, self._dtype), (0, spoken - frames))
        call = FlowCall(tuple(codes), speaker, state)
        return self._run([call], condition[None], is_last=is_last)[0]

    def run(self, calls: Sequence[FlowCall], *, is_last: bool) -> list[FlowMel | None]:
        """Return each turn's mel and next state; None where numbers are not finite.

        ValueError if the calls differ in length or have too few codes, or noise runs out.
        """
        lengths = {len(call.codes) for call in calls}
        if len(lengths) != 1:
            raise ValueError("the calls of a batch have one length")
        spoken = self.sizes.stride * (lengths.pop() - (0 if is_last else LOOK_AHEAD))
        if spoken < 1:
            raise ValueError("a call without a code to speak")
        condition = torch.zeros(
            (len(calls), self.sizes.bands, spoken), device=self._device, dtype=self._dtype
        )
        made = self._run(calls, condition, is_last=is_last)
        with torch.inference_mode():
            mels = torch.stack([one.mel for one in made])
            is_finite = mels.isfinite().flatten(1).all(1).tolist()
        return [one if good else None for one, good in zip(made, is_finite, strict=True)]

    def _run(
        self, calls: Sequence[FlowCall], condition: torch.Tensor, *, is_last: bool
    ) -> list[FlowMel]:
        states = [call.state for call in calls]
        with torch.inference_mode():
            codes = torch.tensor([call.codes for call in calls], device=self._device)
            rows = self._encode(codes, states, is_last=is_last)
            mu = self._parts.to_mel(rows.rows)
            speakers = torch.stack([call.speaker for call in calls])[:, None].expand_as(mu)
            known = torch.cat([mu, speakers, condition.transpose(1, 2)], -1)
            mel, ways = self._walk(known, states)
            attention = _paired(torch.stack([way.attention for way in ways]), 2)
            convolutions = _paired(torch.stack([way.convolutions for way in ways]), 2)
            news = [
                NewRows(
                    rows.context[i],
                    rows.first[:, i],
                    rows.second[:, i],
                    attention[:, :, i],
                    convolutions[:, :, i],
                )
                for i in range(len(calls))
            ]
            return [
                FlowMel(mel[i].T.contiguous(), successor(states[i], new), new)
                for i, new in enumerate(news)
            ]

    def _encode(
        self, codes: torch.Tensor, states: Sequence[FlowState], *, is_last: bool
    ) -> ConformerRows:
        context = torch.stack([state.context for state in states])
        pasts = (
            _filled_in_front([state.first for state in states]),
            _filled_in_front([state.second for state in states]),
        )
        return self._parts.conformer(codes, context, pasts, is_last=is_last)

    def _walk(
        self, known: torch.Tensor, states: Sequence[FlowState]
    ) -> tuple[torch.Tensor, list[Direction]]:
        """Return mel [batch, frames, bands] and what each step yielded."""
        x = self._noise_of(states, known.shape[1])
        # Rows of one turn lie side by side: with the condition, then without.
        both = torch.stack([known, torch.zeros_like(known)], 1).flatten(0, 1)
        ways = []
        for step in range(self.steps):
            rows = x.to(self._dtype).repeat_interleave(2, 0)
            past = _past_of(states, step)
            way = self._parts.estimator(torch.cat([rows, both], -1), self._times, step, past)
            ways.append(way)
            with_it, without = _paired(way.mel.float(), 0).unbind(1)
            length = self._way[step + 1] - self._way[step]
            x = x + length * ((1 + GUIDANCE) * with_it - GUIDANCE * without)
        return x, ways

    def _noise_of(self, states: Sequence[FlowState], frames: int) -> torch.Tensor:
        """Return [batch, frames, bands]."""
        if max(state.frames for state in states) + frames > self._noise.shape[1]:
            raise ValueError(f"noise has only {self._noise.shape[1]} columns")
        return torch.stack(
            [self._noise[:, state.frames : state.frames + frames].T for state in states]
        )


def take_flow(sizes: FlowSizes, tensors: NamedTensors) -> FlowParts:
    """Return the networks of these weights; raise WrongTensors if one lacks or does not fit."""
    return FlowParts(
        conformer=take_conformer(sizes, tensors),
        to_mel=tensors.linear("encoder_proj", sizes.bands, sizes.hidden),
        estimator=take_estimator(sizes, tensors),
        speaker=tensors.linear("spk_embed_affine_layer", sizes.bands, sizes.speaker),
    )


def draw_noise(bands: int, columns: int, seed: int) -> torch.Tensor:
    """Return a table of normal noise, float32 [bands, columns] on the CPU, that the seed decides.

    The published code draws one anew in each process.
    """
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((bands, columns), generator=generator)


def _paired(rows: torch.Tensor, axis: int) -> torch.Tensor:
    """Return the axis of rows as two: turns, and with or without condition."""
    return torch.unflatten(rows, axis, (-1, 2))


def _filled_in_front(rows: Sequence[torch.Tensor]) -> Past:
    """Put [layers, heads, keys, size] of each turn into one batch."""
    longest = max(one.shape[2] for one in rows)
    # Padding copies, also where there is nothing to fill up.
    filled = [
        one if one.shape[2] == longest else F.pad(one, (0, 0, longest - one.shape[2], 0))
        for one in rows
    ]
    mask = None
    if any(one.shape[2] != longest for one in rows):
        starts = torch.tensor([longest - one.shape[2] for one in rows], device=rows[0].device)
        mask = (torch.arange(longest, device=rows[0].device) >= starts[:, None])[:, None, None]
    return Past(torch.stack(filled, 1), mask)


def _past_of(states: Sequence[FlowState], step: int) -> EstimatorPast:
    """Put what each turn remembers of one step into one batch."""
    longest = max(state.frames for state in states)
    filled = [
        state.attention[step]
        if state.frames == longest
        else F.pad(state.attention[step], (0, 0, 0, longest - state.frames))
        for state in states
    ]
    mask = None
    if any(state.frames != longest for state in states):
        device = filled[0].device
        ends = torch.tensor([state.frames for state in states], device=device)
        mask = torch.arange(longest, device=device) < ends[:, None]
        mask = mask.repeat_interleave(2, 0)[:, None, None]
    convolutions = torch.stack([state.convolutions[step] for state in states], 1)
    return EstimatorPast(torch.stack(filled, 1).flatten(1, 2), mask, convolutions.flatten(1, 2))
