"""Walks that were recorded once and are played again: CUDA graphs of `stages.minicpmo.flow_walk`.

A walk is some two thousand small kernels. Starting them one by one takes the host longer than the
GPU needs for all of them, for one turn as for ten.

Rule 1: a graph reads and writes the same memory each time. So there is one for each of a few sizes
        of batches, for calls of one length; what a batch lacks is filled up and hidden, and who
        does not fit goes without a graph.
Rule 2: there is one memory that graphs read, for all of them. So a call is copied in, played and
        copied out before the next one begins: by one thread, on one stream.
Rule 3: frames that are filled up are zeros, since a hidden value still counts 0 times what it is.
        Turns that are filled up are whatever was there, since nothing reads what becomes of them.
Rule 4: graphs are recorded before anybody waits. A recording needs the GPU for itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import torch

from stages.minicpmo.flow_estimator import EstimatorPast, Filled
from stages.minicpmo.flow_sizes import CONTEXT_COLUMNS, KEPT_FRAMES, FlowSizes
from stages.minicpmo.flow_state import FlowState
from stages.minicpmo.flow_walk import Walk, Walked, hiding_bias
from stages.minicpmo.schedule import MAX_CALL_CODES

_BATCHES: Final = (1, 2, 4, 8, 16)
"""A batch between two of them takes the larger one's time."""
_ALIGNED: Final = 8
"""Attention copies a bias whose rows do not begin at a multiple of so many values."""
_CONDITIONS: Final = 3
"""What is known of a frame: the conformer's, the speaker's and the voice's values."""
_WORKSPACE_BYTES: Final = 128 << 20
"""What matrix products of graphs work in, and what is lost between blocks of memory."""


class Recorder(Protocol):
    """What can record work on a device."""

    def __call__(self, work: Callable[[], Walked]) -> Callable[[], Walked]:
        """Return what does the same work again on the same memory.

        Its result is overwritten by the next work that this recorder recorded, whichever it is.
        """
        ...


class CudaRecorder:
    """Records CUDA graphs, which share one pool of memory."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Callable[[], Walked]) -> Callable[[], Walked]:
        """Return what plays the graph of the work, on the stream that is current then."""
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            # Libraries choose their kernels and take their memory at a first time.
            work()
        current.wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        # What other threads do on the GPU meanwhile is none of the graph's business.
        with torch.cuda.graph(
            graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
        ):
            made = work()

        def play() -> Walked:
            graph.replay()
            return made

        return play


@dataclass(frozen=True, slots=True)
class GraphShape:
    """What graphs have room for."""

    batches: tuple[int, ...]
    """Turns, ascending."""
    frames: int
    """Of a call."""
    past: int
    """Frames that a turn remembers."""

    @classmethod
    def of(cls, voice_frames: int, batch: int, sizes: FlowSizes) -> "GraphShape":
        """Return that for every call of voices of so many frames, in batches of at most `batch`."""
        frames = sizes.stride * MAX_CALL_CODES
        keys = -(-(frames + voice_frames + KEPT_FRAMES) // _ALIGNED) * _ALIGNED
        most = min(batch, _BATCHES[-1])
        smaller = [size for size in _BATCHES if size < most]
        return cls((*smaller, most), frames, keys - frames)


class WalkGraphs:
    """The graphs of one network, and the memory that they read."""

    def __init__(
        self,
        walk: Walk,
        sizes: FlowSizes,
        shape: GraphShape,
        record: Recorder,
        like: torch.Tensor,
    ) -> None:
        """Record all graphs; `like` is a tensor of the device and type of the turns' memory."""
        self._shape = shape
        most, rows = shape.batches[-1], 2 * shape.batches[-1]
        pair = (sizes.wide_heads, shape.past, 2 * sizes.head_size)

        def zeros(*size: int) -> torch.Tensor:
            return torch.zeros(size, device=like.device, dtype=like.dtype)

        with torch.inference_mode():
            self._noise = zeros(most, shape.frames, sizes.bands).float()
            self._known = zeros(most, shape.frames, _CONDITIONS * sizes.bands)
            self._attention = zeros(walk.steps, sizes.depth, rows, *pair)
            self._convolutions = zeros(
                walk.steps, sizes.depth, rows, 2 * sizes.wide, CONTEXT_COLUMNS
            )
            self._seen = torch.ones(
                (most, shape.frames + shape.past), device=like.device, dtype=torch.bool
            )
            self._columns = torch.arange(shape.frames + CONTEXT_COLUMNS, device=like.device)
            self._ends = self._columns[-CONTEXT_COLUMNS:].clone()
            # The largest first: what it needs while it works is enough for the others.
            self._graphs = {
                size: record(lambda size=size: self._work(walk, size))  # type: ignore[misc]
                for size in reversed(shape.batches)
            }

    def run(
        self, noise: torch.Tensor, known: torch.Tensor, states: Sequence[FlowState]
    ) -> Walked | None:
        """Return what the walk of this batch yields; None if no graph has room for it.

        All of it are views of memory that the next call overwrites.
        """
        count, frames = known.shape[:2]
        size = next((one for one in self._shape.batches if one >= count), None)
        past = max(state.frames for state in states)
        if size is None or frames > self._shape.frames or past > self._shape.past:
            return None
        self._fill(noise, known, states)
        made = self._graphs[size]()
        return Walked(
            made.mel[:count, :frames],
            made.attention[:, :, : 2 * count, :, :frames],
            made.convolutions[:, :, : 2 * count],
        )

    def _work(self, walk: Walk, size: int) -> Walked:
        """Walk the first `size` turns of the memory."""
        rows = slice(2 * size)
        filled = Filled(hiding_bias(self._seen[:size], self._known.dtype), self._ends)

        def past(step: int) -> EstimatorPast:
            return EstimatorPast(self._attention[step, :, rows], self._convolutions[step, :, rows])

        return walk(self._noise[:size], self._known[:size], past, filled)

    def _fill(self, noise: torch.Tensor, known: torch.Tensor, states: Sequence[FlowState]) -> None:
        (count, frames), room = known.shape[:2], self._shape.frames
        for buffer, given in ((self._noise, noise), (self._known, known)):
            buffer[:count, :frames].copy_(given)
            buffer[:count, frames:].zero_()
        # Columns of a call stand behind those that were kept before.
        self._ends.copy_(self._columns[frames : frames + CONTEXT_COLUMNS])
        # All of it by work on the device: a copy from the host would wait for what runs there.
        self._seen[:count].zero_()
        self._seen[:count, :frames].fill_(True)
        for turn, state in enumerate(states):
            rows = slice(2 * turn, 2 * turn + 2)
            held = self._attention[:, :, rows]
            held[..., : state.frames, :].copy_(state.attention)
            if state.frames < self._shape.past:
                held[..., state.frames :, :].zero_()
            self._convolutions[:, :, rows].copy_(state.convolutions)
            self._seen[turn, room : room + state.frames].fill_(True)


def graph_bytes(
    sizes: FlowSizes, steps: int, dtype: torch.dtype, voice_frames: int, batch: int
) -> int:
    """Return what the graphs for such voices and batches take for good."""
    shape = GraphShape.of(voice_frames, batch, sizes)
    most, pair = shape.batches[-1], 2 * sizes.wide_heads * sizes.head_size
    kept = 2 * sizes.wide * CONTEXT_COLUMNS
    read = most * (shape.past * pair + kept)
    # Each graph has its own results; the largest one's are twice there for a moment.
    made = (sum(shape.batches) + most) * (shape.frames * pair + kept)
    # One block's keys and values side by side, as it needs them, and what the layers pass on.
    inner = 2 * most * (2 * (shape.frames + shape.past) * pair + 8 * shape.frames * sizes.wide_ffn)
    values = 2 * steps * sizes.depth * (read + made) + inner
    return values * dtype.itemsize + _WORKSPACE_BYTES
