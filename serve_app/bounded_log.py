"""Writes the lines that clients can cause without end, as few of them as `LineBound` lets pass."""

import logging
from dataclasses import dataclass, replace
from typing import Final

from serve_app.line_bound import LineBound
from serve_app.session_log import Facts, say

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Line:
    """What is written, without anything that is different each time: a kind of line."""

    sentence: str
    facts: Facts
    level: int = logging.INFO


MORE: Final = Line("more lines of other kinds", Facts())


class BoundedLog:
    """One for all sockets of a gateway."""

    def __init__(self) -> None:
        self._bound: LineBound[Line] = LineBound()

    def write(self, line: Line, *, now: float, error: BaseException | None = None) -> None:
        """Write a line, or count it."""
        if self._bound.admits(line, now=now):
            say(log, line.level, line.sentence, facts=line.facts, error=error)

    def flush(self, now: float) -> None:
        """Tell what was counted; to be called about once a second."""
        for line, count in self._bound.due(now=now):
            told = line or MORE
            say(log, told.level, told.sentence, facts=replace(told.facts, count=count))
