"""The worker's side of the Stage1 benchmark and of its checks: what sampling costs, and its rows.

It looks into vLLM's runner and into the talker's processor, which have no other way to be measured
in the process that they work in.
"""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from stages.minicpmo.batch_rows import slot_rows
from stages.minicpmo.talker_processor_v1 import TalkerProcessorV1
from stages.minicpmo.talker_processor_v2 import TalkerProcessorV2

Processor = TalkerProcessorV1 | TalkerProcessorV2


@dataclass(slots=True)
class _Notes:
    """What the worker did since it was asked last."""

    steps: int = 0
    rows: int = 0
    sampling_s: float = 0.0
    shapes: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Requests of a step, and what they were filled up to."""
    keeps: bool = False
    kept: list[tuple[str, int, torch.Tensor]] = field(default_factory=list)
    """Request, step of its unit, raw logits."""


class MeasuredTalker:
    """Mixed into vLLM's worker, which answers with plain values only."""

    model_runner: Any

    def bench_begin(self) -> None:
        """Measure from now on."""
        self._notes = notes = _Notes()
        runner = self.model_runner
        processor: Any = _processor(runner)
        apply = processor.apply

        def measured(logits: torch.Tensor, *ctx: Any) -> torch.Tensor:
            if notes.keeps:
                found = _rows(runner, processor, len(logits), *ctx)
                notes.kept.extend(
                    (name, step, logits[at].to("cpu", copy=True)) for name, step, at in found
                )
            began_s = time.perf_counter()
            answered: torch.Tensor = apply(logits, *ctx)
            notes.sampling_s += time.perf_counter() - began_s
            notes.steps += 1
            notes.rows += len(logits)
            return answered

        processor.apply = measured
        if isinstance(processor, TalkerProcessorV2):
            _watch_shapes(runner, notes)

    def bench_take(self) -> dict[str, float]:
        """Return the milliseconds of a mean step since the last call, and how many rows it had.

        They are the worker's own time; what a GPU goes on to do is not in them.
        """
        notes = self._notes
        count = max(1, notes.steps)
        taken = {
            "steps": float(notes.steps),
            "sampling_ms": notes.sampling_s * 1000 / count,
            "rows": notes.rows / count,
        }
        notes.steps, notes.rows, notes.sampling_s = 0, 0, 0.0
        return taken

    def bench_keep(self, is_on: bool) -> None:
        """Keep each row's raw logits from now on, or no more. A GPU waits for each step then."""
        self._notes.keeps = is_on

    def bench_kept(self, file: str) -> None:
        """Write what was kept since the last call as `names`, `steps` and `logits` [n, codes+1]."""
        kept, self._notes.kept = self._notes.kept, []
        names = np.array([name for name, _, _ in kept], dtype=str)
        steps = np.array([step for _, step, _ in kept], dtype=np.int64)
        rows = [row.float().numpy() for _, _, row in kept]
        logits = np.stack(rows) if rows else np.zeros((0, 1), np.float32)
        with open(file, "wb") as target:
            np.savez(target, names=names, steps=steps, logits=logits)

    def bench_shapes(self) -> list[tuple[int, int, int]]:
        """Return how many requests were filled up to how many how often, since the last call."""
        shapes = [(*shape, count) for shape, count in sorted(self._notes.shapes.items())]
        self._notes.shapes.clear()
        return shapes


def _processor(runner: Any) -> Processor:
    for one in _processors(runner):
        if isinstance(one, TalkerProcessorV1 | TalkerProcessorV2):
            return one
    raise RuntimeError("the engine runs without the talker's logits processor")


def _processors(runner: Any) -> Iterator[object]:
    yield from getattr(getattr(runner, "sampler", None), "logits_processors", ())
    batch = getattr(runner, "input_batch", None)
    yield from getattr(getattr(batch, "logitsprocs", None), "all", ())


def _rows(
    runner: Any, processor: Processor, count: int, *ctx: Any
) -> Iterator[tuple[str, int, int]]:
    """Yield request, step and place of each talker's row."""
    if isinstance(processor, TalkerProcessorV1):
        for at, row in processor._batch.rows.items():  # noqa: SLF001 - see above
            if at < count:
                yield runner.input_batch.req_ids[at], len(row.sampled), at
        return
    for one in slot_rows(count, ctx[0], processor._states, processor._slots):  # noqa: SLF001
        yield runner.req_states.index_to_req_id[one.slot], one.step, one.row


def _watch_shapes(runner: Any, notes: _Notes) -> None:
    """Count what each step's requests are filled up to, where vLLM's runner says it."""
    sample = runner.sample

    def watched(hidden_states: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        notes.shapes[batch.num_reqs, batch.num_reqs_after_padding] += 1
        return sample(hidden_states, batch, *args, **kwargs)

    runner.sample = watched
