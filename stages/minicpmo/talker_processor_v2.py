"""The talker's sampling in vLLM's V2 model runner, which serves GPUs: all rows, on the device.

The codes that the penalty looks back on are read where the runner keeps them, on the device, so the
host waits for nothing. A slot's request is what came with its last owner; there is no other state.
"""

import logging
from typing import TYPE_CHECKING, Final

import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.worker.gpu.sample.logits_processor.interface import (
    LogitsContext,
    LogitsProcessor,
    LogitsProcRequestState,
)

from stages.minicpmo.batch_rows import SlotRow, slot_rows
from stages.minicpmo.forcing import force_rows, on_device
from stages.minicpmo.talker_request import TalkerRequest
from stages.minicpmo.talker_rows import CodeLooks, choose_codes

if TYPE_CHECKING:
    from vllm.config import VllmConfig

_log = logging.getLogger(__name__)


class TalkerProcessorV2(LogitsProcessor):
    """Forces a code in each row of a talker's; other rows stay as they are."""

    def __init__(self, vllm_config: "VllmConfig", req_states: LogitsProcRequestState) -> None:
        del vllm_config
        self._states: Final = req_states
        # The model's vocabulary is its codes and the id behind them.
        self._stop: Final = req_states.vocab_size - 2
        self._slots: dict[int, TalkerRequest] = {}

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Raise ValueError for a request that can not be read."""
        TalkerRequest.from_extra_args(sampling_params.extra_args)

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:
        """Give the slot to a request; return whether it is a talker's."""
        self._slots.pop(req_idx, None)
        try:
            request = TalkerRequest.from_extra_args(sampling_params.extra_args)
        except ValueError:  # the front refuses it; vLLM would end with all sessions
            _log.exception("a talker's request was not taken")
            return False
        if request is None:
            return False
        self._slots[req_idx] = request
        return True

    def apply(self, logits: torch.Tensor, ctx: LogitsContext) -> torch.Tensor:
        """Force a code in each talker's row of the logits [rows, codes + 1]."""
        try:
            asked = list(slot_rows(len(logits), ctx, self._states, self._slots))
            if asked:
                self._force(logits, asked)
        except Exception:  # noqa: BLE001 - vLLM would end with all sessions
            _log.exception("a step of the talker could not be sampled")
            # Codes that follow no rule must not be spoken. All rows here are talkers'.
            logits.fill_(-torch.inf)
            logits[:, self._stop + 1] = 0.0
        return logits

    def sizes(self) -> dict[str, int]:
        """Return the sizes of all tables."""
        return {"talker_rows": len(self._slots)}

    def _force(self, logits: torch.Tensor, asked: list[SlotRow]) -> None:
        requests = [self._slots[one.slot] for one in asked]
        windows = [request.settings.repetition_window for request in requests]
        table = [
            (one.row, one.slot, int(self._states.prompt_len.np[one.slot]), one.step, window)
            for one, window in zip(asked, windows, strict=True)
        ]
        numbers = on_device(torch.tensor(table), logits.device)
        rows = numbers[:, 0]
        steps = [one.step for one in asked]
        looks = CodeLooks.build(
            list(zip(requests, steps, strict=True)), self._stop + 1, logits.device
        )
        recent = self._recent(numbers[:, 1:], max(windows))
        force_rows(logits, rows, choose_codes(logits[rows], recent, looks, self._stop))

    def _recent(self, numbers: torch.Tensor, window: int) -> torch.Tensor:
        """Return the last codes [n, window] of rows given as slot, first position, step, window."""
        slots, first, step, own = numbers[:, :, None].unbind(dim=1)
        back = torch.arange(window, 0, -1, device=numbers.device)
        places = step - back
        codes = self._states.all_token_ids.gpu[slots, (first + places).clamp(min=0)].long()
        return torch.where((places >= 0) & (back <= own), codes, -1)
