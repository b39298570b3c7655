"""What whoever runs the service wants of a session; the rest is in `session.stimuli`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """The server is about to go away: the session shall end at a quiet moment, or then."""

    until_s: float
    """On the session's clock."""


@dataclass(frozen=True, slots=True)
class DrainWithdrawn:
    """The server stays after all, and so may the session."""


ServiceOrder = DrainRequested | DrainWithdrawn
