"""Writes the lines that clients can cause without end, as few of them as `LineBound` lets pass."""

import logging
from dataclasses import dataclass, replace

from serve_app.logs.line_bound import LineBound
from serve_app.logs.session_log import NO_FACTS, Facts, say
from session.fence import Fence

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Line:
    """What is written, without anything that is different each time: a kind of line."""

    sentence: str
    facts: Facts
    level: int = logging.INFO


class BoundedLog:
    """One for all sockets of a gateway, and one for each session.

    Each sentence at a level has a bound of its own, and there are only so many sentences: what
    is caused of one holds back nothing of another.
    """

    def __init__(self) -> None:
        self._bounds: dict[tuple[int, str], LineBound[Facts]] = {}

    def write(
        self,
        line: Line,
        *,
        now: float,
        fence: Fence | None = None,
        error: BaseException | None = None,
    ) -> None:
        """Write a line, or count it."""
        bound = self._bounds.setdefault((line.level, line.sentence), LineBound())
        if bound.admits(line.facts, now=now):
            say(log, line.level, line.sentence, fence, line.facts, error=error)

    def flush(self, now: float, fence: Fence | None = None) -> None:
        """Tell what was counted; to be called about once a second."""
        for (level, sentence), bound in self._bounds.items():
            for facts, count in bound.due(now=now):
                told = NO_FACTS if facts is None else facts
                say(log, level, sentence, fence, replace(told, count=count))
