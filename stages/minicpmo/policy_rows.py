"""The decode policy's two looks for many rows at once, on the device that has the logits.

It answers what `stages.minicpmo.policy.decode` answers for each row, with one transfer to the host
for all of them. The rules are there; this file says them in operations on a batch.

1. A row's answer depends on that row alone.
2. Only a row's best tokens are brought in order. Where they do not settle the answer, because more
   scores are equal or more mass is needed than they hold, that row is decoded on the host.
3. The logits are not written to.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import torch

from session.errors import StageFailed
from stages.minicpmo.policy import Decision, DecodeSettings, DecodeVocabulary, Draws, decode
from stages.minicpmo.unit_decoder import Tokens

_SPARE: Final = 64
"""How many scores equal to the last of the top-k are held before a row goes to the host."""
_WITHOUT_TOP_K: Final = 1024
"""How many best tokens are held for top-p where no top-k has cut the row."""


@dataclass(frozen=True, slots=True)
class RowLook:
    """One row's look."""

    row: int
    """Which of the logits' rows."""
    history: Tokens
    settings: DecodeSettings
    draws: Draws | None


@dataclass(frozen=True, slots=True, eq=False)
class DeviceVocabulary:
    """The policy's ids, and those that are masked on the device."""

    ids: DecodeVocabulary
    masked: torch.Tensor

    @classmethod
    def build(cls, ids: DecodeVocabulary, device: torch.device) -> Self:
        """Put the masked ids on the device."""
        return cls(ids, torch.from_numpy(ids.masked).to(device))


@dataclass(frozen=True, slots=True, eq=False)
class _Looks:
    """The looks' numbers as columns [n, 1] on the device."""

    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    repetition_penalty: torch.Tensor
    turn_eos_penalty: torch.Tensor
    im_end_scale: torch.Tensor
    im_end_top_k: torch.Tensor
    is_drawn: torch.Tensor
    first: torch.Tensor
    second: torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class _Second:
    """What the second look chose, all [n]."""

    token: torch.Tensor
    highest: torch.Tensor
    is_settled: torch.Tensor


def decide_rows(
    logits: torch.Tensor, looks: Sequence[RowLook], vocabulary: DeviceVocabulary
) -> list[Decision | StageFailed]:
    """Choose a token for each look at a row of logits [rows, vocabulary], float32.

    A row of no use gets StageFailed as its answer; none is raised for it.
    """
    if not looks:
        return []
    rows = _rows_of(logits, looks)
    columns = _columns(looks, logits.device)
    ids = vocabulary.ids
    ends, highest = _first_look(rows, columns, ids)
    scores = _adjusted(rows, looks, columns, vocabulary)
    is_im_end = _is_im_end(scores, looks, columns, ids)
    second = _second_look(scores, looks, columns)
    table = torch.stack(
        (
            highest.double(),
            ends.double(),
            is_im_end.double(),
            second.highest.double(),
            second.is_settled.double(),
            second.token.double(),
        ),
        dim=1,
    ).tolist()
    return [
        _answer(numbers, rows[at], look, ids)
        for at, (numbers, look) in enumerate(zip(table, looks, strict=True))
    ]


def _answer(
    numbers: Sequence[float], row: torch.Tensor, look: RowLook, ids: DecodeVocabulary
) -> Decision | StageFailed:
    highest, ends, is_im_end, best, is_settled, token = numbers
    if not np.isfinite(highest):
        return _useless(highest)
    if ends:
        return Decision(ids.chunk_eos, joins_history=False)
    if is_im_end:
        return Decision(ids.im_end, joins_history=False)
    if not np.isfinite(best):
        return _useless(best)
    if is_settled:
        return Decision(int(token), joins_history=True)
    try:
        return decode(
            row.cpu().numpy(),
            look.history,
            settings=look.settings,
            vocabulary=ids,
            draws=look.draws,
        )
    except StageFailed as error:
        return error


def _useless(highest: float) -> StageFailed:
    return StageFailed(
        f"the highest usable logit is {highest}: the forward pass went wrong, or a mask of "
        "this service left no token; end this conversation, the others are sound"
    )


def _rows_of(logits: torch.Tensor, looks: Sequence[RowLook]) -> torch.Tensor:
    wanted = [look.row for look in looks]
    if wanted == list(range(len(logits))):
        return logits.float()
    return logits.index_select(0, _to(torch.tensor(wanted), logits.device)).float()


def _columns(looks: Sequence[RowLook], device: torch.device) -> _Looks:
    nothing = Draws(0.0, 0.0)
    table = [
        (
            look.settings.temperature,
            look.settings.top_k,
            look.settings.top_p,
            look.settings.repetition_penalty,
            look.settings.turn_eos_penalty,
            look.settings.im_end_scale,
            look.settings.im_end_top_k,
            look.draws is not None,
            (look.draws or nothing).first,
            (look.draws or nothing).second,
        )
        for look in looks
    ]
    numbers = _to(torch.tensor(table, dtype=torch.float64), device)
    return _Looks(*numbers.unbind(dim=1))


def _to(values: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Send a small table to the device without waiting for it."""
    if device.type != "cuda":
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)


def _first_look(
    rows: torch.Tensor, columns: _Looks, ids: DecodeVocabulary
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return whether each row ends its unit, and its highest logit, which is NaN if any is."""
    # `argmax` takes the first of equals on every device; `max` with its indices does not promise.
    best = rows.argmax(dim=1)
    highest = rows.gather(1, best[:, None])[:, 0]
    weights = torch.exp(rows - highest[:, None])
    share = weights[:, ids.chunk_eos].double() / weights.sum(dim=1).double()
    ends = torch.where(columns.is_drawn > 0, columns.first < share, best == ids.chunk_eos)
    return ends, highest


def _adjusted(
    rows: torch.Tensor, looks: Sequence[RowLook], columns: _Looks, vocabulary: DeviceVocabulary
) -> torch.Tensor:
    ids = vocabulary.ids
    scores = rows.clone()
    scores.index_fill_(1, vocabulary.masked, -torch.inf)
    recent = _recent(looks)
    if recent.size:
        at, token = _to(torch.from_numpy(recent), rows.device).unbind(dim=0)
        # A token that comes twice is written twice, with the same value.
        scores[at, token] = scores[at, token] / columns.repetition_penalty.float()[at]
    turn_eos, penalty = scores[:, ids.turn_eos], columns.turn_eos_penalty.float()
    scores[:, ids.turn_eos] = torch.where(turn_eos > 0, turn_eos / penalty, turn_eos * penalty)
    scores[:, ids.im_end] *= columns.im_end_scale.float()
    return scores


def _recent(looks: Sequence[RowLook]) -> npt.NDArray[np.int64]:
    """Return [2, n]: the look, by its place, and the token, for all that was said lately.

    Histories are long and this runs at every step, so no Python touches the single tokens.
    """
    said = [
        look.history[max(0, len(look.history) - look.settings.repetition_window) :]
        for look in looks
    ]
    lengths = [len(one) for one in said]
    recent = np.empty((2, sum(lengths)), np.int64)
    recent[0] = np.repeat(np.arange(len(looks)), lengths)
    recent[1] = np.fromiter(chain.from_iterable(said), np.int64, recent.shape[1])
    return recent


def _is_im_end(
    scores: torch.Tensor, looks: Sequence[RowLook], columns: _Looks, ids: DecodeVocabulary
) -> torch.Tensor:
    if not any(look.settings.im_end_top_k for look in looks):
        return torch.zeros(len(scores), device=scores.device)
    better = (scores > scores[:, ids.im_end, None]).sum(dim=1)
    return better < columns.im_end_top_k


def _second_look(scores: torch.Tensor, looks: Sequence[RowLook], columns: _Looks) -> _Second:
    best = scores.argmax(dim=1)
    highest = scores.gather(1, best[:, None])[:, 0]
    is_drawn = columns.is_drawn > 0
    if not any(look.draws for look in looks):
        return _Second(best, highest, torch.ones_like(is_drawn))
    drawn, is_settled = _drawn(scores, highest, looks, columns)
    return _Second(torch.where(is_drawn, drawn, best), highest, is_settled | ~is_drawn)


def _drawn(
    scores: torch.Tensor, highest: torch.Tensor, looks: Sequence[RowLook], columns: _Looks
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a drawn token for each row, and whether the best that are held settle it."""
    size = scores.shape[1]
    has_open = any(not look.settings.top_k for look in looks)
    most = max(look.settings.top_k for look in looks) + _SPARE
    count = min(size, max(most, _WITHOUT_TOP_K if has_open else 0))
    values, ids = _in_order(*scores.topk(count, dim=1))
    temperature = columns.temperature.float()[:, None]
    scaled = (values - highest[:, None]) / temperature
    is_open = columns.top_k == 0
    last = (columns.top_k.long() - 1).clamp(0, count - 1)
    bound = torch.where(is_open[:, None], -torch.inf, values.gather(1, last[:, None]))
    weights = torch.where((values >= bound) & (values > -torch.inf), scaled.double().exp(), 0.0)
    whole = weights.sum(dim=1)
    if has_open:
        plain = torch.exp((scores - highest[:, None]) / temperature).sum(dim=1, dtype=torch.float64)
        whole = torch.where(is_open, plain, whole)
    kept = _within_top_p(weights, whole, columns.top_p)
    weights = torch.where(kept, weights, 0.0)
    mass = weights.cumsum(dim=1)
    at = (mass <= (columns.second * mass[:, -1])[:, None]).sum(dim=1)
    at = torch.minimum(at, (weights > 0).sum(dim=1) - 1).clamp_min(0)
    token = ids.gather(1, at[:, None])[:, 0]
    # Which of the scores equal to the last one are held is chance, so none of them may matter.
    is_sure = (values > values[:, -1:]) | (count == size)
    matters = kept & is_open[:, None] | (values >= bound) & ~is_open[:, None]
    is_settled = (is_sure | ~matters | (values == -torch.inf)).all(dim=1)
    # Where nothing cuts the row, the policy draws from it in the order of the ids.
    return token, is_settled & ~(is_open & (columns.top_p == 1))


def _in_order(values: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Order tokens [n, m] by their values, highest first, and equal ones by id."""
    ids, by_id = ids.sort(dim=1)
    values, by_value = values.gather(1, by_id).sort(dim=1, descending=True, stable=True)
    return values, ids.gather(1, by_value)


def _within_top_p(weights: torch.Tensor, whole: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Tell which weights [n, m], best first, are kept: the one that crosses the limit is."""
    before = weights.cumsum(dim=1).roll(1, dims=1)
    before[:, 0] = 0.0
    kept = before <= (top_p * whole)[:, None]
    kept[:, 0] = True
    return kept | (top_p == 1)[:, None]
