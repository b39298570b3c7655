"""One stimulus that the kernel has handled: what all who watch a session are told.

The kernel itself knows nothing of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from session.effects import Effect
from session.fence import Fence
from session.machine import DuplexSession
from session.stimuli import AttachedCommand, Received, Stimulus

Told = Stimulus | AttachedCommand
"""What the kernel was told, a client's command without its envelope."""


@dataclass(frozen=True, slots=True)
class Handled:
    """What came in, and what became of it."""

    told: Told
    effects: Sequence[Effect]
    fence: Fence
    """The session's, from now on."""
    is_stale: bool
    """Whether it was dropped, since it belonged to an epoch that is over."""
    at_s: float
    """When it came in."""
    now: float


def handle(session: DuplexSession, stimulus: Stimulus, *, at_s: float, now: float) -> Handled:
    """Have the kernel handle what came in at `at_s`."""
    stale = session.stale
    effects = session.handle(stimulus, now=now)
    is_stale = session.stale != stale
    return Handled(told_by(stimulus), effects, session.fence, is_stale, at_s, now)


def told_by(stimulus: Stimulus) -> Told:
    """Return what a stimulus says, whoever it came from."""
    return stimulus.command if isinstance(stimulus, Received) else stimulus
