"""The call ledger: which function calls of the model still wait for their output.

Rule 1: a call takes one output. One that nobody made takes none.
Rule 2: an output that is withdrawn before the model had it leaves its call waiting again.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

KEPT_CALLS: Final = 256
"""Older calls are forgotten: nobody answers that late."""


@dataclass(slots=True)
class CallLedger:
    """Calls by id, oldest first; true while the output is awaited."""

    _awaits: "OrderedDict[str, bool]" = field(default_factory=OrderedDict)

    def make(self, call_id: str) -> None:
        """The model has made a call."""
        self._awaits[call_id] = True
        while len(self._awaits) > KEPT_CALLS:
            self._awaits.popitem(last=False)

    def awaits(self, call_id: str) -> bool:
        """Whether an output of this call would be taken."""
        return self._awaits.get(call_id, False)

    @property
    def awaited(self) -> int:
        """How many calls wait for their output."""
        return sum(self._awaits.values())

    def answer(self, call_id: str) -> None:
        """The call has got its output."""
        self._awaits[call_id] = False

    def withdraw(self, call_id: str) -> None:
        """The output is gone before the model had it."""
        if call_id in self._awaits:
            self._awaits[call_id] = True

    def forget(self, call_id: str) -> None:
        """The call itself is gone from the conversation."""
        self._awaits.pop(call_id, None)
