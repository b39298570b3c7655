"""What the flow remembers of one turn of one conversation, as values that nothing changes.

Rule 1: a call makes a new state of its own memory and leaves the old one as it was: a call that
        fails, or that was made for nothing, never happened. Turns of one voice begin with the very
        same state.
Rule 2: the estimator's frames stand newest first, a conformer's rows newest last. What is longer
        than the voice's frames + 100 is cut to its first [voice's frames] and its last 100. So
        the estimator keeps the newest frames and the end of what it saw first, the voice.
        (Vectors, section 7.)
Rule 3: the first stack has half as many rows, and the published code cuts it as if they stood
        there twice, one run behind the other, and then reads the first half. Where its voice has
        100 frames or more, that stack therefore keeps the beginning for ever. (The same.)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from stages.minicpmo.flow_sizes import CONTEXT_COLUMNS, KEPT_FRAMES, FlowSizes


@dataclass(frozen=True, slots=True, eq=False)
class FlowState:
    """One turn's memory between two calls."""

    voice_frames: int
    """Frames of mel of the voice: what decides where is cut."""
    context: torch.Tensor
    """[hidden, columns] What the conformer's convolutions keep."""
    first: torch.Tensor
    """[layers, heads, codes, 2 * head size] Keys and values of the stack with a row a code."""
    second: torch.Tensor
    """[layers, heads, frames, 2 * head size] Those of the stack with a row a frame."""
    attention: torch.Tensor
    """[steps, depth, 2, heads, frames, 2 * head size] The estimator's, with condition and without,
    newest first."""
    convolutions: torch.Tensor
    """[steps, depth, 2, 2 * wide, 2]"""

    @property
    def frames(self) -> int:
        """Frames remembered."""
        return self.attention.shape[4]

    @property
    def memory_bytes(self) -> int:
        """Bytes that it takes on the device."""
        tensors = (self.context, self.first, self.second, self.attention, self.convolutions)
        return sum(one.untyped_storage().nbytes() for one in tensors)


@dataclass(frozen=True, slots=True, eq=False)
class NewRows:
    """What a call adds to one state."""

    context: torch.Tensor
    first: torch.Tensor
    second: torch.Tensor
    attention: torch.Tensor
    convolutions: torch.Tensor


def empty_state(
    sizes: FlowSizes, steps: int, voice_frames: int, device: torch.device, dtype: torch.dtype
) -> FlowState:
    """Return the memory of something of which nothing was heard yet."""

    def zeros(*shape: int) -> torch.Tensor:
        return torch.zeros(shape, device=device, dtype=dtype)

    size, pair = sizes.hidden, 2 * sizes.hidden // sizes.heads
    return FlowState(
        voice_frames=voice_frames,
        context=zeros(size, sizes.context),
        first=zeros(sizes.layers, sizes.heads, 0, pair),
        second=zeros(sizes.up_layers, sizes.heads, 0, pair),
        attention=zeros(steps, sizes.depth, 2, sizes.wide_heads, 0, 2 * sizes.head_size),
        convolutions=zeros(steps, sizes.depth, 2, 2 * sizes.wide, CONTEXT_COLUMNS),
    )


def successor(state: FlowState, new: NewRows) -> FlowState:
    """Return the memory after a call, in tensors of its own."""
    head = state.voice_frames
    limit = head + KEPT_FRAMES
    first = [state.first, new.first]
    half = state.first.shape[2] + new.first.shape[2]
    if 2 * half > limit:
        runs = [*first, *first]
        kept = [*_cut(runs, 2, 0, head), *_cut(runs, 2, 2 * half - KEPT_FRAMES, 2 * half)]
        first = _cut(kept, 2, 0, limit // 2)
    return FlowState(
        voice_frames=head,
        context=new.context.clone(),
        first=torch.cat(first, 2),
        second=_kept([state.second, new.second], 2, head),
        attention=_kept([new.attention, state.attention], 4, head),
        convolutions=new.convolutions.clone(),
    )


def _kept(parts: Sequence[torch.Tensor], axis: int, head: int) -> torch.Tensor:
    """Return the parts behind one another, cut to the first `head` and the last KEPT_FRAMES."""
    whole = sum(part.shape[axis] for part in parts)
    if whole > head + KEPT_FRAMES:
        tail = _cut(parts, axis, whole - KEPT_FRAMES, whole)
        parts = [*_cut(parts, axis, 0, head), *tail]
    return torch.cat(list(parts), axis)


def _cut(parts: Sequence[torch.Tensor], axis: int, start: int, stop: int) -> list[torch.Tensor]:
    """Return views of entries `start` to `stop` of the parts, counted over all of them."""
    views, before = [], 0
    for part in parts:
        size = part.shape[axis]
        low, high = max(start - before, 0), min(stop - before, size)
        if low < high:
            views.append(part.narrow(axis, low, high - low))
        before += size
    return views
