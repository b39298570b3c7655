"""The worker's side of the Stage0 benchmark: what a step of the policy and of the tap costs there.

It looks into the policy's desk, which has no other way to be measured in the process it works in.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from stages.minicpmo.tap_sender import CopiedRows
from stages.minicpmo.worker_extension import TapExtension, _processor


@dataclass(slots=True)
class _Spent:
    """Seconds of the worker's own thread since they were taken last."""

    steps: int = 0
    policy_s: float = 0.0
    look_s: float = 0.0
    keep_s: float = 0.0


class _NoRows:
    """Stands in for the copier: a number in place of each hidden row, and no copy."""

    def copy(self, rows: torch.Tensor, wanted: list[int]) -> CopiedRows:
        return CopiedRows(torch.zeros(len(wanted), 1, dtype=rows.dtype), None)


class MeasuredTap(TapExtension):
    """Mixed into the worker in place of the product's own."""

    def bench_begin(self) -> None:
        """Measure from now on."""
        processor: Any = _processor(self.model_runner)
        desk = processor.desk
        self._spent = _Spent()
        self._copier = desk._copier  # noqa: SLF001 - see above
        spent = self._spent
        answer, keep, apply = desk.answer, desk._keep_hidden, processor.apply  # noqa: SLF001

        def timed_answer(asks: Any, look: Callable[[Any], Any]) -> Any:
            def timed_look(looks: Any) -> Any:
                began = time.perf_counter()
                try:
                    return look(looks)
                finally:
                    spent.look_s += time.perf_counter() - began

            return answer(asks, timed_look)

        def timed_keep(asks: Any) -> None:
            began = time.perf_counter()
            keep(asks)
            spent.keep_s += time.perf_counter() - began

        def timed_apply(*args: Any) -> Any:
            began = time.perf_counter()
            try:
                return apply(*args)
            finally:
                spent.policy_s += time.perf_counter() - began
                spent.steps += 1

        desk.answer, desk._keep_hidden = timed_answer, timed_keep  # noqa: SLF001
        processor.apply = timed_apply

    def bench_take(self) -> dict[str, float]:
        """Return the milliseconds of a mean step since the last call, and how many there were."""
        spent = self._spent
        per_step = 1000 / max(1, spent.steps)
        taken = {
            "steps": float(spent.steps),
            "policy_ms": spent.policy_s * per_step,
            "look_ms": spent.look_s * per_step,
            "keep_ms": spent.keep_s * per_step,
        }
        spent.steps, spent.policy_s, spent.look_s, spent.keep_s = 0, 0.0, 0.0, 0.0
        return taken

    def bench_rows(self, is_on: bool) -> None:
        """Let hidden rows leave the device, or a number in place of each."""
        desk: Any = _processor(self.model_runner).desk
        desk._copier = self._copier if is_on else _NoRows()  # noqa: SLF001
