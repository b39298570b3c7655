"""One step of the talker's sampling: a row of code logits and this unit's codes give a code.

1. Logits are divided by the temperature; then each code among the last of this unit is made less
   likely, by the penalty to the power of how often it is there: a positive one is divided, a
   negative one multiplied. Then the stop code is masked, if the unit may not stop yet (vectors,
   section 6). Codes of the units before do not count.
2. The likeliest is taken, or one is drawn, within top-k and then top-p where these are on. The
   published values have both off.

A row that holds NaN or +inf, or of which the mask leaves nothing, raises StageFailed: the row's
session has failed and no other. Everything is pure; the draw is an argument.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from session.errors import StageFailed

Row = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class TalkerSettings:
    """How logits become a code. `PUBLISHED_TALKER` holds the published values."""

    temperature: float
    top_k: int
    """How many of the likeliest codes stay, among equals those of lower numbers; 0 is no limit."""
    top_p: float
    """The mass at which the rest is cut off; the code that crosses it stays. 1 is no limit."""
    repetition_penalty: float
    repetition_window: int
    """How many codes of the unit the penalty looks back on."""

    def __post_init__(self) -> None:
        positive = min(self.temperature, self.repetition_penalty)
        counts = min(self.top_k, self.repetition_window)
        if not (positive > 0 and counts >= 0 and 0 < self.top_p <= 1):
            raise ValueError(f"talker settings out of range: {self}")

    @property
    def is_filtered(self) -> bool:
        """Tell whether less likely codes are cut off."""
        return self.top_k > 0 or self.top_p < 1


PUBLISHED_TALKER: Final = TalkerSettings(
    temperature=0.8, top_k=0, top_p=1.0, repetition_penalty=1.05, repetition_window=16
)


def choose_code(
    row: Row,
    codes: Sequence[int],
    *,
    settings: TalkerSettings,
    masked: int | None,
    draw: float | None,
) -> int:
    """Choose a code for one row [codes]; without a draw, in [0, 1), the likeliest.

    `codes` are this unit's before it, newest last. `masked` is the stop code where it is forbidden.
    """
    scores = code_scores(row, codes, settings, masked)
    highest = scores.max()
    if not np.isfinite(highest):
        raise StageFailed(
            f"the talker's highest usable logit is {highest}: the forward pass went wrong, or a "
            "mask of this service left no code"
        )
    if draw is None:
        return int(np.argmax(scores))
    weights = np.exp((scores - highest).astype(np.float64))
    if settings.is_filtered:
        ids = np.argsort(-scores, kind="stable")
        weights = _within(weights[ids], settings)
        return int(ids[_at(weights, draw)])
    return _at(weights, draw)


def code_scores(
    row: Row, codes: Sequence[int], settings: TalkerSettings, masked: int | None
) -> Row:
    """Return the row [codes] after temperature, penalty and mask; softmax makes it a distribution.

    Arithmetic is float32, as the vectors were made.
    """
    scores = row.astype(np.float32) / np.float32(settings.temperature)
    recent = np.array(codes[max(0, len(codes) - settings.repetition_window) :], np.int64)
    ids, counts = np.unique(recent, return_counts=True)
    factors = np.float32(settings.repetition_penalty) ** counts.astype(np.float32)
    scores[ids] = np.where(scores[ids] < 0, scores[ids] * factors, scores[ids] / factors)
    if masked is not None:
        scores[masked] = -np.inf
    return scores


def _within(weights: npt.NDArray[np.float64], settings: TalkerSettings) -> npt.NDArray[np.float64]:
    """Return the weights [n], likeliest first, that top-k and top-p leave."""
    if settings.top_k:
        weights = weights[: settings.top_k]
    before = np.cumsum(weights) - weights
    kept: npt.NDArray[np.float64] = weights[before <= settings.top_p * weights.sum()]
    return kept


def _at(weights: npt.NDArray[np.float64], draw: float) -> int:
    """Return the place at `draw` of the weights' mass; it has a weight above 0."""
    mass = np.cumsum(weights)
    at = int(np.searchsorted(mass, draw * mass[-1], side="right"))
    return min(at, int(np.flatnonzero(weights)[-1]))
