"""What a segment of the talker's tells the processor in the engine's worker.

It travels as plain values in the segment's sampling arguments and is read there by type; a wrong
one is refused before the segment is accepted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from stages.minicpmo.extra_args import read_extra_args, write_extra_args
from stages.minicpmo.random_numbers import MOST_SEED, uniforms
from stages.minicpmo.talker_policy import TalkerSettings
from stages.minicpmo.talker_unit import TalkerLimits

EXTRA_ARG: Final = "minicpmo_talker"
"""The key of a request in `Sampling.extra_args`."""
_STEPS_AT_ONCE: Final = 26


@dataclass(frozen=True, slots=True)
class TalkerRequest:
    """How one unit's codes are chosen."""

    limits: TalkerLimits
    settings: TalkerSettings
    seed: int | None
    """The unit's own, in 0 … 2^63 - 1; without one the likeliest code is taken."""

    def __post_init__(self) -> None:
        if self.seed is not None and not 0 <= self.seed <= MOST_SEED:
            raise ValueError(f"a seed of {self.seed} is out of range")

    def draw(self, step: int) -> float | None:
        """Return the random number of a step, which depends on the seed and the step alone."""
        if self.seed is None:
            return None
        block, place = divmod(step, _STEPS_AT_ONCE)
        return uniforms(self.seed, block, _STEPS_AT_ONCE)[place]

    def to_extra_args(self) -> dict[str, Any]:
        """Return `Sampling.extra_args` that hold this request as plain values."""
        return write_extra_args(EXTRA_ARG, self)

    @classmethod
    def from_extra_args(cls, extra_args: Mapping[str, Any] | None) -> Self | None:
        """Read what `to_extra_args` wrote; None if there is none, ValueError if it is wrong."""
        return read_extra_args(EXTRA_ARG, cls, extra_args)
