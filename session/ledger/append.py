"""The append ledger: one unit out at a time, in order, under the settings it was accepted with.

Rule 1: sequence numbers start at 1 in every epoch and have no gaps among committed units.
Rule 2: a number is taken only by a commit; after a roll back the next unit uses it again.
Rule 3: units of silence are counted for one owner at a time, an answer or a turn of the model that
        has none yet; another owner starts at zero.
Rule 4: an answer that came too soon waits here. Its unit is out until the answer is taken, so that
        a cancellation finds it not consumed.
"""

from dataclasses import dataclass

from session.errors import LocalProtocolError
from session.ids import OperationId
from session.unit import UnitResult


@dataclass(frozen=True, slots=True)
class PendingAppend:
    """The unit that is at Stage0 now."""

    seq: int
    operation_id: OperationId
    config_generation: int
    is_continuation: bool


@dataclass(slots=True)
class AppendLedger:
    """Order of units within an epoch."""

    committed_seq: int = 0
    pending: PendingAppend | None = None
    early: UnitResult | None = None
    """What Stage0 has answered to the unit that is out, before that could be dealt with."""
    last_submit_at_s: float | None = None
    last_input_at_s: float | None = None
    _continued: str = ""
    _continuations: int = 0

    @property
    def is_busy(self) -> bool:
        """Whether a unit is out."""
        return self.pending is not None

    def begin(
        self, operation_id: OperationId, generation: int, *, is_continuation: bool, now: float
    ) -> PendingAppend:
        """Take the next number for a unit."""
        if self.pending is not None:
            raise LocalProtocolError("append ledger: a unit is already out")
        self.last_submit_at_s = now
        self.pending = PendingAppend(
            self.committed_seq + 1, operation_id, generation, is_continuation
        )
        return self.pending

    def continuations_of(self, owner: str) -> int:
        """How many units of silence this owner has had."""
        return self._continuations if owner == self._continued else 0

    def count_continuation(self, owner: str) -> int:
        """Count one more for this owner; return how many those are."""
        self._continuations = self.continuations_of(owner) + 1
        self._continued = owner
        return self._continuations

    def commit(self, seq: int) -> PendingAppend | None:
        """Stage0 consumed unit `seq`. None when that unit is not the one that is out."""
        pending = self.pending
        if pending is None or pending.seq != seq:
            return None
        self.pending = self.early = None
        self.committed_seq = seq
        return pending

    def keep(self, seq: int, result: UnitResult) -> None:
        """Let the answer to unit `seq` wait, if that is the unit that is out."""
        if self.pending is not None and self.pending.seq == seq:
            self.early = result

    def roll_back(self) -> None:
        """The unit that is out was not consumed."""
        self.pending = self.early = None

    def enter_epoch(self) -> None:
        """A cancellation: numbering starts anew."""
        self.pending = self.early = None
        self.committed_seq = 0
