"""What a client may do per minute, as it is told at the beginning of an answer."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RateLimit:
    """One bounded rate at one moment."""

    limit: int
    remaining: int
    reset_s: float
    """Until as much as the limit remains again."""


ReadRates = Callable[[], tuple[RateLimit, ...]]
"""Reads the rates of a session's client as they are now; whoever makes a projector has a clock."""


def no_rates() -> tuple[RateLimit, ...]:
    """Return the rates of a client that is not bounded."""
    return ()
