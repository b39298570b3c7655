"""The decode policy in vLLM's V2 model runner, which serves GPUs: all rows at once, on the device.

A request keeps its slot while it runs; the rows are in another order at each step. The runner is
asked for a further step before the last one's tokens are known, so a unit that has ended is asked
once more. A slot is cleared when the next request takes it, or when its owner forgets the unit.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.worker.gpu.sample.logits_processor.interface import (
    LogitsContext,
    LogitsProcessor,
    LogitsProcRequestState,
)

from session.errors import StageFailed
from stages.minicpmo.batch_rows import slot_rows
from stages.minicpmo.forcing import force
from stages.minicpmo.policy import Decision
from stages.minicpmo.policy_desk import Ask, Look, PolicyDesk
from stages.minicpmo.policy_request import PolicyRequest
from stages.minicpmo.policy_rows import DeviceVocabulary, RowLook, decide_rows
from stages.minicpmo.row_decoder import load_tools

if TYPE_CHECKING:
    from vllm.config import VllmConfig

_log = logging.getLogger(__name__)


class PolicyProcessorV2(LogitsProcessor):
    """Forces the policy's token in each row of a session's; other rows stay as they are."""

    def __init__(self, vllm_config: "VllmConfig", req_states: LogitsProcRequestState) -> None:
        tools = load_tools(Path(vllm_config.model_config.tokenizer))
        # One for each slot, and one that comes before the slot's last one is gone.
        self.desk: Final = PolicyDesk(tools, req_states.max_num_reqs + 1)
        self._states: Final = req_states
        self._vocabulary: Final = DeviceVocabulary.build(tools.vocabulary, req_states.device)
        self._slots: dict[int, str] = {}

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Raise ValueError for a policy request that can not be read."""
        PolicyRequest.from_extra_args(sampling_params.extra_args)

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:
        """Give the slot to a request; return whether the policy decodes it."""
        request_id = self.desk.open(sampling_params.extra_args)
        before = self._slots.pop(req_idx, None)
        if before is not None and before != request_id:
            self.desk.forget([before])
        if request_id is None:
            return False
        for slot in [slot for slot, one in self._slots.items() if one == request_id]:
            # It was set aside and comes back in another slot.
            del self._slots[slot]
        self._slots[req_idx] = request_id
        return True

    def apply(self, logits: torch.Tensor, ctx: LogitsContext) -> torch.Tensor:
        """Force a token in each session's row of the logits [rows, vocabulary]."""
        try:
            asks = self._asks(len(logits), ctx)
            if asks:
                force(logits, self.desk.answer(asks, lambda looks: self._look(logits, looks)))
        except Exception:  # noqa: BLE001 - vLLM would end with all sessions
            self.desk.errors += 1
            _log.exception("a batch could not be decoded")
        return logits

    def sizes(self) -> dict[str, int]:
        """Return the sizes of all tables."""
        return {**self.desk.sizes(), "policy_rows": len(self._slots)}

    def forget(self, request_ids: Sequence[str]) -> None:
        """Drop all that is known of some units."""
        gone = set(request_ids)
        self._slots = {slot: one for slot, one in self._slots.items() if one not in gone}
        self.desk.forget(gone)

    def _asks(self, rows: int, ctx: LogitsContext) -> list[Ask]:
        return [
            Ask(one.row, self._slots[one.slot], one.step)
            for one in slot_rows(rows, ctx, self._states, self._slots)
        ]

    def _look(self, logits: torch.Tensor, looks: Sequence[Look]) -> list[Decision | StageFailed]:
        rows = [
            RowLook(look.row, look.decoder.history, look.decoder.request.settings, look.draws)
            for look in looks
        ]
        return decide_rows(logits, rows, self._vocabulary)
