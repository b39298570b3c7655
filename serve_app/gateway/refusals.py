"""How often one socket was refused of late: who goes on and on with wrong events is flooding.

Rule 1: it is counted when a refusal is sent, since a client's wrong events cost most there, and
        those that wait to be read have bounds of their own.
Rule 2: a refusal because too much input waits does not count: the mailbox bounds those, and whoever
        sends a recording faster than it is taken is told to send it again.
"""

from collections import deque
from typing import Final

MOST_REFUSALS: Final = 1_200
"""A microphone with frames of 10 ms, each refused, makes 1,000 in that time."""
WITHIN_S: Final = 10.0


class Refusals:
    """The refusals of one socket within the last seconds."""

    def __init__(self) -> None:
        self._at_s: deque[float] = deque(maxlen=MOST_REFUSALS + 1)

    def note(self, *, now: float) -> None:
        """The client was told that it did wrong."""
        self._at_s.append(now)

    @property
    def are_many(self) -> bool:
        """Whether there were more than any client has a reason for."""
        at_s = self._at_s
        return len(at_s) == at_s.maxlen and at_s[-1] - at_s[0] < WITHIN_S
