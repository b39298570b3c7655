"""What vLLM's worker has from us beside the model: the tap, and the tables that tests look into.

vLLM mixes this class into its worker, and a client calls these methods through `collective_rpc`.
They are called between steps, never within one.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from stages.minicpmo.policy_request import EXTRA_ARG
from stages.minicpmo.processor_v1 import PolicyProcessorV1
from stages.minicpmo.processor_v2 import PolicyProcessorV2
from stages.minicpmo.tap_sender import TapSender

Processor = PolicyProcessorV1 | PolicyProcessorV2


class TapExtension:
    """Mixed into the worker; all it keeps is on the policy's desk."""

    model_runner: Any

    def tap_open(self, address: str) -> None:
        """Send units' records to this ZMQ address from now on, and to no other.

        RuntimeError if the engine was started without the policy's logits processor.
        """
        processor = _processor(self.model_runner)
        desk = processor.desk
        if isinstance(desk.sender, TapSender):
            desk.sender.close()
        else:
            _watch_hidden(self.model_runner.model, processor)
        if isinstance(processor, PolicyProcessorV1):
            _link(processor, self.model_runner)
        desk.sender = TapSender(address)

    def tap_sizes(self) -> dict[str, int]:
        """Return how many entries each per-request table has, and what went wrong so far."""
        processor = _processor(self.model_runner)
        sender = processor.desk.sender
        dropped = sender.dropped if isinstance(sender, TapSender) else 0
        return {**processor.sizes(), "errors": processor.desk.errors, "dropped": dropped}

    def tap_forget(self, request_ids: Sequence[str]) -> None:
        """Drop all that is known of some units; unknown ones are no error."""
        _processor(self.model_runner).forget(request_ids)


def _processor(runner: Any) -> Processor:
    for one in _processors(runner):
        if isinstance(one, PolicyProcessorV1 | PolicyProcessorV2):
            return one
    raise RuntimeError("the engine runs without the decode policy's logits processor")


def _processors(runner: Any) -> Iterator[object]:
    sampler = getattr(runner, "sampler", None)
    yield from getattr(sampler, "logits_processors", ())
    batch = getattr(runner, "input_batch", None)
    yield from getattr(getattr(batch, "logitsprocs", None), "all", ())


def _watch_hidden(model: Any, processor: Processor) -> None:
    """Keep the rows that logits are computed of: their order is that of the logits' rows."""
    compute_logits = model.compute_logits

    def watched(hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        processor.desk.hidden = hidden_states
        return compute_logits(hidden_states, *args, **kwargs)

    model.compute_logits = watched


def _link(processor: PolicyProcessorV1, runner: Any) -> None:
    """Let the V1 adapter ask what its own interface does not say."""

    def is_partial(row: int) -> bool:
        return bool(runner.discard_request_mask.np[row])

    def alive() -> frozenset[str]:
        arguments = [request.sampling_params.extra_args for request in runner.requests.values()]
        return frozenset(
            one[EXTRA_ARG]["request_id"] for one in arguments if one and EXTRA_ARG in one
        )

    processor.is_partial, processor.alive = is_partial, alive
