"""One unit of the talker's as a machine of values: how many codes, and when they may stop.

The rules of the vectors, section 6, and of the published serving set-up.

1. A unit takes one step for each code that is sampled, up to its budget. A stop code ends it. The
   last code that is sampled is not spoken: it is the stop code, or the one that used the budget up.
   So what is spoken is what the talker remembers.
2. A unit in the middle of a turn may not stop before its budget: it has one second of codes. The
   first unit of a turn and the last may stop at once.
3. The last unit of a turn may have a larger budget, to say what is left. Beyond a second of codes
   it may not stop in the first steps of a further second: so few codes would not be heard.
"""

from dataclasses import dataclass, replace
from typing import Final

Codes = tuple[int, ...]

CODES_PER_SECOND: Final = 25


@dataclass(frozen=True, slots=True)
class TalkerRules:
    """What bounds a unit. Steps are one more than the codes that can be spoken."""

    max_steps: int
    last_max_steps: int
    """For the unit that ends the turn."""
    steps_without_stop: int
    """Steps after each full second in which a turn's last unit may not stop; 0 is off."""

    def __post_init__(self) -> None:
        if min(self.max_steps, self.last_max_steps) < 1:
            raise ValueError(f"talker rules out of range: {self}")
        if not 0 <= self.steps_without_stop <= CODES_PER_SECOND:
            raise ValueError(f"talker rules out of range: {self}")


RECORDED_RULES: Final = TalkerRules(max_steps=26, last_max_steps=26, steps_without_stop=0)
"""Those of the models' authors' own loop, which cuts a turn's end at a second."""
SERVING_RULES: Final = TalkerRules(max_steps=26, last_max_steps=104, steps_without_stop=5)
"""Those of the published serving set-up: up to four seconds for a turn's end."""


@dataclass(frozen=True, slots=True)
class TalkerLimits:
    """What the rules make of one unit."""

    stop: int
    """The stop code, which is the last code there is."""
    max_steps: int
    min_steps: int
    """Steps before the stop code is allowed."""
    steps_without_stop: int

    @property
    def broken(self) -> int:
        """The id that stands for a row that no code could be chosen of."""
        return self.stop + 1

    def masks_stop(self, step: int) -> bool:
        """Tell whether the stop code is forbidden at a step, which count from 0."""
        if step < self.min_steps:
            return True
        return step >= CODES_PER_SECOND and step % CODES_PER_SECOND < self.steps_without_stop


def talker_limits(rules: TalkerRules, *, stop: int, is_first: bool, is_last: bool) -> TalkerLimits:
    """Return the limits of a unit, by whether it is the first of its turn and the last."""
    max_steps = rules.last_max_steps if is_last else rules.max_steps
    return TalkerLimits(
        stop=stop,
        max_steps=max_steps,
        min_steps=0 if is_first or is_last else max_steps,
        steps_without_stop=rules.steps_without_stop if is_last else 0,
    )


@dataclass(frozen=True, slots=True)
class TalkerUnit:
    """A unit after some steps."""

    limits: TalkerLimits
    sampled: Codes = ()

    @property
    def step(self) -> int:
        """Return the number of the step to come, from 0."""
        return len(self.sampled)

    @property
    def masks_stop(self) -> bool:
        """Tell whether the stop code is forbidden at the step to come."""
        return self.limits.masks_stop(self.step)

    @property
    def is_over(self) -> bool:
        """Tell whether no further step comes."""
        return self.limits.stop in self.sampled[-1:] or self.step >= self.limits.max_steps

    @property
    def codes(self) -> Codes:
        """Return what is spoken so far; once the unit is over, it is all and what it remembers."""
        return self.sampled[:-1] if self.is_over else self.sampled

    def take(self, code: int) -> "TalkerUnit":
        """Take the step. ValueError if the unit is over, or may not have this code."""
        if self.is_over:
            raise ValueError(f"the unit was over after {self.step} steps")
        if not 0 <= code <= self.limits.stop or (code == self.limits.stop and self.masks_stop):
            raise ValueError(f"{code} is no code that step {self.step} can have")
        return replace(self, sampled=(*self.sampled, code))
