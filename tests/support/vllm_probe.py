"""A worker of vLLM's whose last logits can be read."""

from typing import Any

import torch

from stages.minicpmo.worker_extension import TapExtension


class LogitsProbe:
    """Keeps the logits as the model computed them, before any processor."""

    model_runner: Any
    _last: torch.Tensor
    _is_poisoned = False

    def probe(self) -> None:
        """Keep the logits of each step from now on."""
        model = self.model_runner.model
        compute_logits = model.compute_logits

        def kept(hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            logits = compute_logits(hidden_states, *args, **kwargs)
            self._last = logits.clone()
            if self._is_poisoned:
                self._is_poisoned = False
                logits.fill_(torch.nan)
            return logits

        model.compute_logits = kept

    def poison(self) -> None:
        """Make the next step's logits no numbers."""
        self._is_poisoned = True

    def last_logits(self, columns: list[int]) -> tuple[list[list[float]], list[int], list[float]]:
        """Return the last step's logits at some columns, and each row's best and logsumexp."""
        last = self._last
        return (
            last[:, columns].tolist(),
            last.argmax(dim=1).tolist(),
            last.logsumexp(dim=1).tolist(),
        )


class ProbedTap(TapExtension, LogitsProbe):
    """The tap, and the logits. vLLM takes one class."""
