"""One step of the decode policy: a row of logits and a history give a token (vectors, section 5).

1. First look, on the raw row: the maximum, or a draw at temperature 1 without any filter. Only
   whether it is `chunk_eos` counts; if so, that is the answer and the history does not get it.
2. Otherwise `tts_pad`, `chunk_eos` and the tokenizer's forbidden ids are masked, and the logits of
   recent tokens and of `turn_eos` are scaled.
3. Second look: the maximum, or a draw after temperature, top-k and top-p.

A row that holds NaN or +inf, or of which the masks leave nothing, raises StageFailed: the row's
session has failed and no other.

Everything is pure: random draws are arguments and the row is not written to. Arithmetic on logits
is float32, as the vectors were made; probabilities are float64. No step sorts the vocabulary.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from session.errors import StageFailed
from stages.minicpmo.special_tokens import SpecialTokens

Row = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]

_ROWS: Final = 64
"""Rows of the table as which the logits are searched for the best."""
_FIRST_GUESS: Final = 1024
"""How many tokens top-p looks at first, where no top-k has cut the row."""


@dataclass(frozen=True, slots=True)
class DecodeSettings:
    """How logits become a choice. `PUBLISHED` holds the published values."""

    temperature: float
    top_k: int
    """How many of the best tokens stay, those equal to the last of them too; 0 is no limit."""
    top_p: float
    """The mass at which the rest is cut off; the token that crosses it stays. 1 is no limit."""
    repetition_penalty: float
    repetition_window: int
    """How many tokens of the history the penalty looks back on."""
    turn_eos_penalty: float
    im_end_scale: float
    """Multiplies the logit of `<|im_end|>`; 1 is off. Published as an act on `listen`."""
    im_end_top_k: int
    """`<|im_end|>` among this many best is the answer at once; 0 is off."""

    def __post_init__(self) -> None:
        positive = (
            self.temperature,
            self.repetition_penalty,
            self.turn_eos_penalty,
            self.im_end_scale,
        )
        counts = (self.top_k, self.repetition_window, self.im_end_top_k)
        if min(positive) <= 0 or min(counts) < 0 or not 0 < self.top_p <= 1:
            raise ValueError(f"decode settings out of range: {self}")


PUBLISHED: Final = DecodeSettings(
    temperature=0.7,
    top_k=20,
    top_p=0.8,
    repetition_penalty=1.05,
    repetition_window=512,
    turn_eos_penalty=1.1,
    im_end_scale=1.0,
    im_end_top_k=0,
)


@dataclass(frozen=True, slots=True, eq=False)
class DecodeVocabulary:
    """The ids that the policy treats apart."""

    chunk_eos: int
    turn_eos: int
    im_end: int
    masked: Ids
    """What the second look may not answer, ascending."""

    @classmethod
    def build(cls, tokens: SpecialTokens, forbidden: Iterable[int]) -> Self:
        """Put the tokenizer's forbidden ids together with those that are always masked."""
        masked = {*map(int, forbidden), tokens.tts_pad, tokens.chunk_eos}
        return cls(
            chunk_eos=tokens.chunk_eos,
            turn_eos=tokens.turn_eos,
            im_end=tokens.im_end,
            masked=np.array(sorted(masked), np.int64),
        )


@dataclass(frozen=True, slots=True)
class Draws:
    """Two random numbers in [0, 1), one for each look."""

    first: float
    second: float


@dataclass(frozen=True, slots=True)
class Decision:
    """What a step chose, before a unit's rules act on it."""

    token: int
    joins_history: bool


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """What a second look draws from: ids and probabilities [n].

    The likeliest comes first where top-k or top-p is on, otherwise the lowest id.
    """

    ids: Ids
    probabilities: npt.NDArray[np.float64]

    def draw(self, number: float) -> int:
        """Return the id at `number`, in [0, 1), of the mass."""
        mass = np.cumsum(self.probabilities)
        at = int(np.searchsorted(mass, number * mass[-1], side="right"))
        return int(self.ids[min(at, len(self.ids) - 1)])


def decode(
    row: Row,
    history: Sequence[int],
    *,
    settings: DecodeSettings,
    vocabulary: DecodeVocabulary,
    draws: Draws | None,
) -> Decision:
    """Choose a token for one row [vocabulary]; without draws, greedily.

    `history` is what joined it before, newest last; what lies before its window is not looked at.
    """
    if is_chunk_eos_at_first_look(row, vocabulary, draws):
        return Decision(vocabulary.chunk_eos, joins_history=False)
    scores = adjusted(row, history, settings, vocabulary)
    if _is_im_end_at_once(scores, settings, vocabulary):
        return Decision(vocabulary.im_end, joins_history=False)
    if draws is None:
        best = int(np.argmax(scores))
        _require_usable(scores[best])
        return Decision(best, joins_history=True)
    return Decision(distribution(scores, settings).draw(draws.second), joins_history=True)


def is_chunk_eos_at_first_look(row: Row, vocabulary: DecodeVocabulary, draws: Draws | None) -> bool:
    """Tell whether the raw row ends the unit. Greedily, the lower id wins a tie."""
    if draws is None:
        best = int(np.argmax(row))
        _require_usable(row[best])
        return best == vocabulary.chunk_eos
    return draws.first < chunk_eos_probability(row, vocabulary)


def chunk_eos_probability(row: Row, vocabulary: DecodeVocabulary) -> float:
    """Return the probability of `chunk_eos` in softmax(row).

    A draw from the row is compared with `chunk_eos` alone, so this number is all of it.
    """
    highest = row.max()
    _require_usable(highest)
    weights = np.exp(row - highest, dtype=np.float32)
    return float(weights[vocabulary.chunk_eos]) / float(weights.sum())


def adjusted(
    row: Row, history: Sequence[int], settings: DecodeSettings, vocabulary: DecodeVocabulary
) -> Row:
    """Return the row with masks and penalties, before the temperature.

    The repetition penalty always divides, so a negative logit rises: the published rule.
    """
    scores = row.astype(np.float32)
    scores[vocabulary.masked] = -np.inf
    recent = history[max(0, len(history) - settings.repetition_window) :]
    if recent and settings.repetition_penalty != 1:
        scores[np.array(list(set(recent)), np.int64)] /= np.float32(settings.repetition_penalty)
    penalty = np.float32(settings.turn_eos_penalty)
    turn_eos = scores[vocabulary.turn_eos]
    scores[vocabulary.turn_eos] = turn_eos / penalty if turn_eos > 0 else turn_eos * penalty
    scores[vocabulary.im_end] *= np.float32(settings.im_end_scale)
    return scores


def distribution(scores: Row, settings: DecodeSettings) -> Distribution:
    """Return what sampling draws from: softmax(scores / temperature) within top-k and top-p."""
    highest = scores.max()
    _require_usable(highest)
    if settings.top_k:
        return _within_top_p(scores, settings, _best(scores, settings.top_k), total=None)
    weights = np.exp((scores - highest) / np.float32(settings.temperature), dtype=np.float32)
    total = float(weights.sum(dtype=np.float64))
    if settings.top_p == 1:
        return _within_top_p(scores, settings, np.flatnonzero(scores > -np.inf), total=total)
    count = _FIRST_GUESS
    while True:
        ids = _best(scores, count)
        mass = float(weights[ids].sum(dtype=np.float64))
        if count >= len(scores) or mass > settings.top_p * total:
            return _within_top_p(scores, settings, ids, total=total)
        count *= 8


def _within_top_p(
    scores: Row, settings: DecodeSettings, ids: Ids, *, total: float | None
) -> Distribution:
    """Cut `ids` [n], best first, at top-p of `total`; without a total they are all there is.

    The mass of an id is exp((score - highest) / temperature).
    """
    scaled = (scores[ids] - scores[ids].max()) / np.float32(settings.temperature)
    weights = np.exp(scaled.astype(np.float64))
    if settings.top_p < 1:
        mass_before = np.concatenate(([0.0], np.cumsum(weights)[:-1]))
        limit = settings.top_p * (weights.sum() if total is None else total)
        kept = max(1, int(np.searchsorted(mass_before, limit, side="right")))
        ids, weights = ids[:kept], weights[:kept]
    return Distribution(ids, weights / weights.sum())


def _best(scores: Row, count: int) -> Ids:
    """Return the ids of the `count` highest scores, best first, ties by id.

    Scores equal to the last of them come too, and no masked one does.
    """
    ids = _candidates(scores, count)
    values = scores[ids]
    if len(ids) > count:
        kept = values >= np.partition(values, len(ids) - count)[len(ids) - count]
        ids, values = ids[kept], values[kept]
    kept = values > -np.inf
    ids, values = ids[kept], values[kept]
    return ids[np.argsort(-values, kind="stable")]


def _candidates(scores: Row, count: int) -> Ids:
    """Return ascending ids with all of the `count` best among them; for a small count, a few.

    The row is laid out as a table and cut into columns. A score below the count-th highest of
    the columns' maxima is below `count` others, so only the columns that reach it are of use.
    """
    columns = len(scores) // _ROWS
    if count >= columns:
        return np.arange(len(scores))
    table = scores[: _ROWS * columns].reshape(_ROWS, columns)
    maxima = table.max(axis=0)
    bound = np.partition(maxima, columns - count)[columns - count]
    useful = np.flatnonzero(maxima >= bound)
    inside = (np.arange(_ROWS)[:, None] * columns + useful).reshape(-1)
    return np.concatenate((inside, np.arange(_ROWS * columns, len(scores))))


def _is_im_end_at_once(scores: Row, settings: DecodeSettings, vocabulary: DecodeVocabulary) -> bool:
    if not settings.im_end_top_k:
        return False
    return int(np.count_nonzero(scores > scores[vocabulary.im_end])) < settings.im_end_top_k


def _require_usable(highest: np.float32) -> None:
    """Refuse a row by its maximum, which is NaN if any logit is."""
    if not np.isfinite(highest):
        raise StageFailed(
            f"the highest usable logit is {highest}: the forward pass went wrong, or a mask of "
            "this service left no token; end this conversation, the others are sound"
        )
