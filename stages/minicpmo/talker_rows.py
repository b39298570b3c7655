"""The talker's sampling for many rows at once, on the device that has the logits.

It answers what `stages.minicpmo.talker_policy.choose_code` answers for each row; the rules are
there. Nothing is transferred to the host, so the engine can go on to the next step meanwhile.

1. A row's answer depends on that row alone.
2. A row that no code can be chosen of is answered with the id behind the codes.
3. The logits are not written to.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch

from stages.minicpmo.forcing import on_device
from stages.minicpmo.talker_request import TalkerRequest


@dataclass(frozen=True, slots=True, eq=False)
class CodeLooks:
    """What some rows are looked at with: columns [n, 1] on the device."""

    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    penalty: torch.Tensor
    draw: torch.Tensor
    is_drawn: torch.Tensor
    is_stop_masked: torch.Tensor
    is_filtered: torch.Tensor
    some_filtered: bool

    @classmethod
    def build(
        cls, asked: Sequence[tuple[TalkerRequest, int]], codes: int, device: torch.device
    ) -> Self:
        """Put requests, each with its step, on the device; there are so many codes."""
        lines = [_line(request, step, codes) for request, step in asked]
        # In 64 bits, as the draws are made.
        table = on_device(torch.tensor(lines, dtype=torch.float64), device)
        temperature, top_k, top_p, penalty, draw, masked, filtered = table.T[:, :, None].unbind()
        return cls(
            temperature=temperature.float(),
            top_k=top_k,
            top_p=top_p,
            penalty=penalty.float(),
            draw=draw,
            is_drawn=draw >= 0,
            is_stop_masked=masked > 0,
            is_filtered=filtered > 0,
            some_filtered=any(request.settings.is_filtered for request, _ in asked),
        )


def _line(request: TalkerRequest, step: int, codes: int) -> list[float]:
    settings, draw = request.settings, request.draw(step)
    return [
        settings.temperature,
        settings.top_k or codes,
        settings.top_p,
        settings.repetition_penalty,
        -1.0 if draw is None else draw,
        request.limits.masks_stop(step),
        settings.is_filtered,
    ]


def choose_codes(
    logits: torch.Tensor, recent: torch.Tensor, looks: CodeLooks, stop: int
) -> torch.Tensor:
    """Return a code [n] for rows [n, codes + 1] of logits; `stop` is the last code.

    `recent` [n, window] are the codes that the penalty looks back on, -1 where there is none.
    """
    scores = _scores(logits, recent, looks, stop)
    highest, best = scores.max(dim=1, keepdim=True)
    weights = (scores - highest).double().exp()
    drawn = _drawn(weights, looks.draw)
    if looks.some_filtered:
        order = (-scores).argsort(dim=1, stable=True)
        kept = _within(weights.gather(1, order), looks)
        at = order.gather(1, _drawn(kept, looks.draw))
        drawn = torch.where(looks.is_filtered, at, drawn)
    chosen = torch.where(looks.is_drawn, drawn, best)
    return torch.where(highest.isfinite(), chosen, stop + 1).squeeze(1)


def _scores(
    logits: torch.Tensor, recent: torch.Tensor, looks: CodeLooks, stop: int
) -> torch.Tensor:
    """Return float32 scores [n, codes + 1] in which the id behind the codes is impossible."""
    scores = logits[:, : stop + 2].float() / looks.temperature
    # What stands for no code, or for none that a code can follow, changes the last column only.
    ids = torch.where((recent < 0) | (recent > stop), stop + 1, recent)
    counts = (ids[:, :, None] == ids[:, None, :]).sum(dim=2)
    factors = looks.penalty**counts
    before = scores.gather(1, ids)
    scores.scatter_(1, ids, torch.where(before < 0, before * factors, before / factors))
    scores[:, stop : stop + 1].masked_fill_(looks.is_stop_masked, -torch.inf)
    scores[:, stop + 1] = -torch.inf
    return scores


def _within(weights: torch.Tensor, looks: CodeLooks) -> torch.Tensor:
    """Return weights [n, codes + 1], likeliest first, of which top-k and top-p leave some."""
    places = torch.arange(weights.shape[1], device=weights.device)
    weights = weights.masked_fill(places >= looks.top_k, 0.0)
    before = weights.cumsum(dim=1) - weights
    total = weights.sum(dim=1, keepdim=True)
    return weights.masked_fill(before > looks.top_p * total, 0.0)


def _drawn(weights: torch.Tensor, draw: torch.Tensor) -> torch.Tensor:
    """Return the place [n, 1] at each draw of its row's mass; it has a weight above 0."""
    mass = weights.cumsum(dim=1)
    at = torch.searchsorted(mass, draw.clamp(min=0.0) * mass[:, -1:], right=True)
    places = torch.arange(weights.shape[1], device=weights.device)
    last = torch.where(weights > 0, places, 0).amax(dim=1, keepdim=True)
    return torch.minimum(at, last)
