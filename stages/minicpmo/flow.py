"""The flow: codes to mel, a call at a time, for many turns at once.

Rule 1: mel is found by walking from noise (`stages.minicpmo.flow_walk`).
Rule 2: noise is one fixed table; a call's columns begin at the count of frames remembered.
Rule 3: turns in a batch do not see each other. What one remembers less than another is filled up
        and hidden by a mask, and numbers that are not finite are told for each turn.
Rule 4: the calls of a batch have one length and one end; who has mixed ones makes two batches.
Rule 5: batches may be walked by graphs that were recorded beforehand (`capture`); those that do not
        fit one are walked as if there were none, and both yield the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from stages.minicpmo.conformer import Conformer, ConformerRows, Past, take_conformer
from stages.minicpmo.flow_estimator import Estimator, EstimatorPast, Filled, take_estimator
from stages.minicpmo.flow_graphs import GraphShape, Recorder, WalkGraphs
from stages.minicpmo.flow_sizes import FlowSizes
from stages.minicpmo.flow_state import FlowState, NewRows, empty_state, successor
from stages.minicpmo.flow_walk import Walk, Walked, hiding_bias
from stages.minicpmo.named_tensors import Linear, NamedTensors
from stages.minicpmo.schedule import LOOK_AHEAD

_ATTENTION: Final = [
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]
"""All but cuDNN's, which takes a tenth of a second to prepare for each new shape. In a graph, whose
shapes are prepared when it is recorded, it is welcome."""


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
    """What `state` was made of, in the batch's memory; the next call may overwrite it."""


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
        self._walk = Walk(parts.estimator, steps)
        self._graphs: WalkGraphs | None = None

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

    def capture(self, record: Recorder, voice_frames: int, batch: int) -> None:
        """Record the walks of batches of up to `batch` turns with voices of up to so many frames.

        To be called by the thread that runs the calls; what was recorded before is forgotten.
        """
        self._graphs = None
        shape = GraphShape.of(voice_frames, batch, self.sizes)
        like = self._parts.to_mel.weight
        self._graphs = WalkGraphs(self._walk, self.sizes, shape, record, like)

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
        with torch.inference_mode(), sdpa_kernel(_ATTENTION):
            codes = torch.tensor([call.codes for call in calls], device=self._device)
            rows = self._encode(codes, states, is_last=is_last)
            mu = self._parts.to_mel(rows.rows)
            speakers = torch.stack([call.speaker for call in calls])[:, None].expand_as(mu)
            known = torch.cat([mu, speakers, condition.transpose(1, 2)], -1)
            walked = self._walk_from(known, states)
            attention, convolutions = _paired(walked.attention), _paired(walked.convolutions)
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
                FlowMel(walked.mel[i].T.contiguous(), successor(states[i], new), new)
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

    def _walk_from(self, known: torch.Tensor, states: Sequence[FlowState]) -> Walked:
        noise = self._noise_of(states, known.shape[1])
        if self._graphs is not None and (made := self._graphs.run(noise, known, states)):
            return made
        filled = Filled(_hidden_past(states, known.shape[1], self._dtype), None)
        return self._walk(noise, known, lambda step: _past_of(states, step), filled)

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


def _paired(rows: torch.Tensor) -> torch.Tensor:
    """Return the third axis, of rows, as two: turns, and with or without condition."""
    return torch.unflatten(rows, 2, (-1, 2))


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
    attention = [
        state.attention[step]
        if state.frames == longest
        else F.pad(state.attention[step], (0, 0, 0, longest - state.frames))
        for state in states
    ]
    convolutions = torch.stack([state.convolutions[step] for state in states], 1)
    return EstimatorPast(torch.stack(attention, 1).flatten(1, 2), convolutions.flatten(1, 2))


def _hidden_past(
    states: Sequence[FlowState], frames: int, dtype: torch.dtype
) -> torch.Tensor | None:
    """Return what hides the frames that `_past_of` fills up, from a call of so many frames."""
    lengths = [state.frames for state in states]
    longest, device = max(lengths), states[0].attention.device
    if min(lengths) == longest:
        return None
    seen = torch.arange(longest) < torch.tensor(lengths)[:, None]
    return hiding_bias(F.pad(seen, (frames, 0), value=True).to(device), dtype)
