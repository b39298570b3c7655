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


def _timed(work: Callable[..., Any], spent: _Spent, name: str) -> Callable[..., Any]:
    """Return the same work, whose seconds are added up under a name of `spent`."""

    def timed(*args: Any) -> Any:
        began = time.perf_counter()
        try:
            return work(*args)
        finally:
            setattr(spent, name, getattr(spent, name) + time.perf_counter() - began)
            spent.steps += name == "policy_s"

    return timed


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
        self._spent = spent = _Spent()
        self._copier = desk._copier  # noqa: SLF001 - see above
        answer = desk.answer

        def timed_answer(asks: Any, look: Callable[..., Any]) -> Any:
            return answer(asks, _timed(look, spent, "look_s"))

        desk.answer = timed_answer
        desk._keep_hidden = _timed(desk._keep_hidden, spent, "keep_s")  # noqa: SLF001
        processor.apply = _timed(processor.apply, spent, "policy_s")

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
