"""What a segment tells the decode policy, which runs in another process.

It travels as plain values in the segment's sampling arguments, because that is what vLLM carries to
its worker; it is read there by type, and a wrong one is refused before the segment is accepted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from stages.minicpmo.extra_args import read_extra_args, write_extra_args
from stages.minicpmo.policy import DecodeSettings, Draws
from stages.minicpmo.random_numbers import MOST_SEED, uniforms
from stages.minicpmo.unit_decoder import SpeechState, UnitRules

EXTRA_ARG: Final = "minicpmo"
"""The key of a policy request in `Sampling.extra_args`."""
_STEPS_AT_ONCE: Final = 20


@dataclass(frozen=True, slots=True)
class PolicyRequest:
    """How one unit is to be decoded."""

    request_id: str
    """The segment's; what the unit's record is sent under."""
    seed: int | None
    """The unit's own, in 0 … 2^63 - 1; without one the likeliest token is taken."""
    must_listen: bool
    speech: SpeechState
    settings: DecodeSettings
    rules: UnitRules

    def __post_init__(self) -> None:
        if self.seed is not None and not 0 <= self.seed <= MOST_SEED:
            raise ValueError(f"a seed of {self.seed} is out of range")

    def draws(self, step: int) -> Draws | None:
        """Return the random numbers of a step, which depend on the seed and the step alone."""
        if self.seed is None:
            return None
        block, place = divmod(step, _STEPS_AT_ONCE)
        numbers = uniforms(self.seed, block, 2 * _STEPS_AT_ONCE)
        return Draws(numbers[2 * place], numbers[2 * place + 1])

    def to_extra_args(self) -> dict[str, Any]:
        """Return `Sampling.extra_args` that hold this request as plain values."""
        return write_extra_args(EXTRA_ARG, self)

    @classmethod
    def from_extra_args(cls, extra_args: Mapping[str, Any] | None) -> Self | None:
        """Read what `to_extra_args` wrote; None if there is none, ValueError if it is wrong."""
        return read_extra_args(EXTRA_ARG, cls, extra_args)
