"""What checks say, and how two runs of the talker are held against each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from stages.minicpmo.talker_policy import TalkerSettings, code_scores
from stages.minicpmo.talker_request import TalkerRequest
from stages.minicpmo.talker_unit import TalkerLimits

Rows = npt.NDArray[np.float32]

TIE: Final = 0.01
"""Scores that are nearer than this, or shares of the mass: another order of additions decides."""


@dataclass(slots=True)
class Outcomes:
    """The checks' table; its lines are printed as they come."""

    faults: int = 0

    def say(self, what: str, is_so: bool, detail: str) -> None:
        """Print one line."""
        self.faults += not is_so
        print(f"| {'ok' if is_so else 'FAULT'} | {what} | {detail} |", flush=True)

    def note(self, what: str, detail: str) -> None:
        """Print a line that is only to be read."""
        print(f"| - | {what} | {detail} |", flush=True)


@dataclass(frozen=True, slots=True)
class UnitSeen:
    """A unit as the engine gave it."""

    sampled: tuple[int, ...]
    """With the code that ended it."""
    is_stopped: bool
    """By the stop code, not by its budget."""
    first_position: int
    is_first: bool
    """Of its turn."""
    seed: int | None
    stop_masked: tuple[bool, ...]
    """By step."""


@dataclass(slots=True)
class Compared:
    """How a run is like another one."""

    equal: int = 0
    ties: int = 0
    """Units that part at a step where two codes are about equally likely."""
    behind_ties: int = 0
    """Later units of such turns, which have something else in memory."""
    wrong: list[str] = field(default_factory=list)

    @property
    def said(self) -> str:
        """Return it in words."""
        parted = f", {self.ties} parted at a tie, {self.behind_ties} behind those"
        ties = parted if self.ties else ""
        wrong = f"; WRONG: {'; '.join(self.wrong[:3])}" if self.wrong else ""
        return f"{self.equal} units equal{ties}{wrong}"


def compare(
    wanted: Mapping[str, Sequence[UnitSeen]],
    found: Mapping[str, Sequence[UnitSeen]],
    rows: Mapping[str, Sequence[Rows]],
    settings: TalkerSettings,
    stop: int,
) -> Compared:
    """Hold runs of the same sessions against each other; `rows` are the wanted run's logits."""
    compared = Compared()
    for name, units in wanted.items():
        is_parted = False
        for number, (one, other) in enumerate(zip(units, found[name], strict=True)):
            is_parted = is_parted and not one.is_first
            if is_parted:
                compared.behind_ties += 1
            elif (one.sampled, one.is_stopped, one.first_position) == (
                other.sampled,
                other.is_stopped,
                other.first_position,
            ):
                compared.equal += 1
            elif is_tie(one, other, rows[name][number], settings, stop):
                compared.ties += 1
                is_parted = True
            else:
                compared.wrong.append(f"{name}/{number} {_where(one, other)}")
                is_parted = True
    return compared


def largest_difference(
    units: Mapping[str, Sequence[UnitSeen]],
    others: Mapping[str, Sequence[UnitSeen]],
    rows: Mapping[str, Sequence[Rows]],
    other_rows: Mapping[str, Sequence[Rows]],
) -> float:
    """Return how far logits are apart, as long as what came before them is equal."""
    apart = 0.0
    for name, of_session in units.items():
        is_parted = False
        for number, (one, other) in enumerate(zip(of_session, others[name], strict=True)):
            is_parted = is_parted and not one.is_first
            if is_parted:
                continue
            mine, theirs = rows[name][number], other_rows[name][number]
            steps = min(_first_difference(one, other) + 1, len(mine), len(theirs))
            apart = max(apart, float(np.abs(mine[:steps] - theirs[:steps]).max()))
            is_parted = one.sampled != other.sampled
    return apart


def is_tie(one: UnitSeen, other: UnitSeen, rows: Rows, settings: TalkerSettings, stop: int) -> bool:
    """Say whether rounding can have made the difference; the first one was chosen of `rows`."""
    step = _first_difference(one, other)
    if one.first_position != other.first_position or step >= min(
        len(one.sampled), len(other.sampled)
    ):
        return False
    if step >= len(rows):
        return False
    masked = stop if one.stop_masked[step] else None
    row = rows[step, : stop + 1]
    scores = code_scores(row, one.sampled[:step], settings, masked).astype(np.float64)
    chosen, instead = one.sampled[step], other.sampled[step]
    if one.seed is None:
        return bool(abs(scores[chosen] - scores[instead]) < TIE)
    weights = np.exp(scores - scores.max())
    mass = np.cumsum(weights) / weights.sum()
    limits = TalkerLimits(stop, step + 1, 0, 0)
    draw = TalkerRequest(limits, settings, one.seed).draw(step) or 0.0
    low = mass[instead - 1] if instead else 0.0
    return bool(low - TIE < draw < mass[instead] + TIE)


def _first_difference(one: UnitSeen, other: UnitSeen) -> int:
    pairs = zip(one.sampled, other.sampled, strict=False)
    for step, (mine, theirs) in enumerate(pairs):
        if mine != theirs:
            return step
    return min(len(one.sampled), len(other.sampled))


def _where(one: UnitSeen, other: UnitSeen) -> str:
    step = _first_difference(one, other)
    return (
        f"from step {step}: {one.sampled[step : step + 3]} of {len(one.sampled)} and "
        f"{other.sampled[step : step + 3]} of {len(other.sampled)}"
    )
