"""Leaves one token of a row of logits possible."""

from collections.abc import Mapping

import torch


def force(logits: torch.Tensor, tokens: Mapping[int, int]) -> None:
    """Force a token in each of the given rows of the logits [rows, vocabulary], in place."""
    if not tokens:
        return
    table = torch.tensor([list(tokens.keys()), list(tokens.values())])
    if logits.is_cuda:
        table = table.pin_memory().to(logits.device, non_blocking=True)
    rows, chosen = table.unbind(dim=0)
    logits.index_fill_(0, rows, -torch.inf)
    logits[rows, chosen] = 0.0
