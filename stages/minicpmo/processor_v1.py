"""The decode policy in vLLM's V1 model runner, which serves CPUs: rows on the host, one by one.

A row's place in the batch changes as requests come and go; `update_state` says how. A request that
is set aside for a step loses its row and comes back, so a unit under way outlives its row; one that
is over does not.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor.interface import BatchUpdate, LogitsProcessor

from session.errors import StageFailed
from stages.minicpmo.batch_rows import DenseRows
from stages.minicpmo.forcing import force
from stages.minicpmo.policy import Decision, decode
from stages.minicpmo.policy_desk import Ask, Look, PolicyDesk
from stages.minicpmo.policy_request import PolicyRequest
from stages.minicpmo.row_decoder import load_tools

if TYPE_CHECKING:
    from vllm.config import VllmConfig

_log = logging.getLogger(__name__)

_UNITS_A_SESSION: Final = 4
"""How many units of a session may be known at once before one was evidently never forgotten."""


@dataclass(frozen=True, slots=True, eq=False)
class _Row:
    request_id: str
    sampled: Sequence[int]
    """The engine's own list of what the segment has sampled; its length is the step."""


class PolicyProcessorV1(LogitsProcessor):
    """Forces the policy's token in each row of a session's; other rows stay as they are."""

    def __init__(self, vllm_config: "VllmConfig", device: torch.device, is_pin_memory: bool):
        most = _UNITS_A_SESSION * vllm_config.scheduler_config.max_num_seqs
        self.desk: Final = PolicyDesk(load_tools(Path(vllm_config.model_config.tokenizer)), most)
        self.is_partial: Callable[[int], bool] = _never
        """Tells of a row whether its input is incomplete; the worker's extension puts it there."""
        self.alive: Callable[[], frozenset[str]] = lambda: self.desk.request_ids
        """Returns the units that the engine still has; the worker's extension puts it there."""
        self._batch: DenseRows[_Row] = DenseRows()

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Raise ValueError for a policy request that can not be read."""
        PolicyRequest.from_extra_args(sampling_params.extra_args)

    def is_argmax_invariant(self) -> bool:
        """Say that the likeliest token changes."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow what vLLM does to the batch: removed, added, moved, in this order."""
        if batch_update is None:
            return
        try:
            self._follow(batch_update)
        except Exception:  # noqa: BLE001 - vLLM would end with all sessions
            self.desk.errors += 1
            _log.exception("the batch's rows could not be followed")

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Force a token in each session's row of the logits [rows, vocabulary]."""
        try:
            asks = [
                Ask(at, row.request_id, len(row.sampled))
                for at, row in self._batch.rows.items()
                if at < len(logits) and not self.is_partial(at)
            ]
            force(logits, self.desk.answer(asks, lambda looks: self._look(logits, looks)))
        except Exception:  # noqa: BLE001 - vLLM would end with all sessions
            self.desk.errors += 1
            _log.exception("a batch could not be decoded")
        return logits

    def sizes(self) -> dict[str, int]:
        """Return the sizes of all tables."""
        return {**self.desk.sizes(), "policy_rows": len(self._batch.rows)}

    def forget(self, request_ids: Sequence[str]) -> None:
        """Drop all that is known of some units."""
        gone = set(request_ids)
        self._batch.keep(lambda row: row.request_id not in gone)
        self.desk.forget(gone)

    def _follow(self, update: BatchUpdate) -> None:
        before = self._named()
        self._batch.follow(update, self._added)
        now = self._named()
        self.desk.forget([one for one in before - now if self.desk.is_over(one)])
        waiting = self.desk.request_ids - now
        if waiting:
            self.desk.forget(waiting - self.alive())

    def _named(self) -> set[str]:
        return {row.request_id for row in self._batch.rows.values()}

    def _added(self, params: SamplingParams, sampled: list[int]) -> _Row | None:
        request_id = self.desk.open(params.extra_args)
        return None if request_id is None else _Row(request_id, sampled)

    def _look(self, logits: torch.Tensor, looks: Sequence[Look]) -> list[Decision | StageFailed]:
        return [self._look_at(logits[look.row], look) for look in looks]

    def _look_at(self, row: torch.Tensor, look: Look) -> Decision | StageFailed:
        try:
            return decode(
                row.float().cpu().numpy(),
                look.decoder.history,
                settings=look.decoder.request.settings,
                vocabulary=self.desk.tools.vocabulary,
                draws=look.draws,
            )
        except StageFailed as error:
            return error


def _never(_: int) -> bool:
    return False
