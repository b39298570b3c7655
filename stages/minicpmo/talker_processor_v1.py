"""The talker's sampling in vLLM's V1 model runner, which serves CPUs: rows on the host, one by one.

A row's codes are the engine's own list, so nothing has to be remembered between steps. A row that
no code can be chosen of is answered with the id behind the codes.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor.interface import BatchUpdate, LogitsProcessor

from stages.minicpmo.batch_rows import DenseRows
from stages.minicpmo.forcing import force
from stages.minicpmo.talker_policy import choose_code
from stages.minicpmo.talker_request import TalkerRequest

if TYPE_CHECKING:
    from vllm.config import VllmConfig

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class _Row:
    request: TalkerRequest
    sampled: Sequence[int]
    """The engine's own list of what the segment has sampled."""


class TalkerProcessorV1(LogitsProcessor):
    """Forces a code in each row of a talker's; other rows stay as they are."""

    def __init__(self, vllm_config: "VllmConfig", device: torch.device, is_pin_memory: bool):
        del vllm_config, device, is_pin_memory
        self._batch: DenseRows[_Row] = DenseRows()

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Raise ValueError for a request that can not be read."""
        TalkerRequest.from_extra_args(sampling_params.extra_args)

    def is_argmax_invariant(self) -> bool:
        """Say that the likeliest code changes."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow what vLLM does to the batch."""
        if batch_update is not None:
            self._batch.follow(batch_update, _added)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Force a code in each talker's row of the logits [rows, codes + 1]."""
        rows = self._batch.rows.items()
        force(logits, {at: _code(logits[at], row) for at, row in rows if at < len(logits)})
        return logits

    def sizes(self) -> dict[str, int]:
        """Return the sizes of all tables."""
        return {"talker_rows": len(self._batch.rows)}


def _added(params: SamplingParams, sampled: list[int]) -> _Row | None:
    try:
        request = TalkerRequest.from_extra_args(params.extra_args)
    except ValueError:  # the front refuses what can not be read; vLLM would end with all sessions
        _log.exception("a talker's request was not taken")
        return None
    return None if request is None else _Row(request, sampled)


def _code(logits: torch.Tensor, row: _Row) -> int:
    limits, step = row.request.limits, len(row.sampled)
    try:
        return choose_code(
            logits[: limits.stop + 1].float().cpu().numpy(),
            [code for code in row.sampled if code <= limits.stop],
            settings=row.request.settings,
            masked=limits.stop if limits.masks_stop(step) else None,
            draw=row.request.draw(step),
        )
    except Exception:  # noqa: BLE001 - vLLM would end with all sessions
        _log.exception("step %d of a talker's unit has no code", step)
        return limits.broken
