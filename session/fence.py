"""The fence: who a stimulus or a stage call speaks for, and whether that is still the present.

Rule 1: staleness is decided by incarnation and epoch alone. The turn names the owner of an
        answer; the tail of a finished turn in the same epoch is still current.
Rule 2: an epoch rises by exactly one at each cancellation and never falls.
Rule 3: a fence from the future, or of another session, is unknown: nobody here issued it.
"""

import enum
from dataclasses import dataclass, replace

from session.ids import SessionId


class FenceVerdict(enum.Enum):
    """What a holder of the current fence thinks of a presented one."""

    CURRENT = "current"
    STALE = "stale"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Fence:
    """Identity of one stretch of a session's life."""

    session_id: SessionId
    incarnation: int
    epoch: int
    turn: int

    def judge(self, presented: "Fence") -> FenceVerdict:
        """Judge `presented` from the view of this, the current, fence."""
        if presented.session_id != self.session_id:
            return FenceVerdict.UNKNOWN
        mine, theirs = (self.incarnation, self.epoch), (presented.incarnation, presented.epoch)
        if theirs == mine:
            return FenceVerdict.CURRENT
        return FenceVerdict.STALE if theirs < mine else FenceVerdict.UNKNOWN

    def next_epoch(self) -> "Fence":
        """Return the fence after a cancellation: a new epoch, and a new model turn."""
        return replace(self, epoch=self.epoch + 1, turn=self.turn + 1)

    def next_turn(self) -> "Fence":
        """Return the fence after the model ended its turn."""
        return replace(self, turn=self.turn + 1)
