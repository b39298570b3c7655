"""Leaves one token of a row of logits possible."""

from collections.abc import Mapping

import torch


def force(logits: torch.Tensor, tokens: Mapping[int, int]) -> None:
    """Force a token in each of the given rows of the logits [rows, vocabulary], in place."""
    if not tokens:
        return
    rows, chosen = on_device(
        torch.tensor([list(tokens.keys()), list(tokens.values())]), logits.device
    ).unbind(dim=0)
    force_rows(logits, rows, chosen)


def force_rows(logits: torch.Tensor, rows: torch.Tensor, chosen: torch.Tensor) -> None:
    """Do the same for row numbers [n] and tokens [n] that are on the logits' device."""
    logits.index_fill_(0, rows, -torch.inf)
    logits[rows, chosen] = 0.0


def on_device(table: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a small table that the host has made on the device, without waiting for it."""
    if device.type != "cuda":
        return table
    return table.pin_memory().to(device, non_blocking=True)
