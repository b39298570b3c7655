"""Lines that strangers can cause without end: one of a kind in a period, then how many there were.

Rule 1: the first of a kind is written at once; those that follow within the period are counted.
Rule 2: nothing is lost silently: what was counted is told once the period is over.
Rule 3: so many kinds at once and no more; what is of a further kind is counted together, and told
        once a period too.
"""

import logging
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from serve_app.logs.log_lines import NO_FACTS, Facts, say
from session.fence import Fence

log = logging.getLogger(__name__)

KindT = TypeVar("KindT", bound=Hashable)

PERIOD_S: Final = 10.0
MOST_KINDS: Final = 64


@dataclass(slots=True)
class _Held:
    until_s: float
    count: int = 0


class LineBound(Generic[KindT]):
    """Decides which lines are written."""

    def __init__(self, *, period_s: float = PERIOD_S, most_kinds: int = MOST_KINDS) -> None:
        self._period_s = period_s
        self._most_kinds = most_kinds
        self._held: dict[KindT, _Held] = {}
        self._others: _Held | None = None

    def admits(self, kind: KindT, *, now: float) -> bool:
        """Whether a line of this kind is written now; otherwise it is counted."""
        held = self._held.get(kind)
        if held is not None:
            held.count += 1
            return False
        if len(self._held) >= self._most_kinds:
            self._others = self._others or _Held(now + self._period_s)
            self._others.count += 1
            return False
        self._held[kind] = _Held(now + self._period_s)
        return True

    def due(self, *, now: float) -> list[tuple[KindT | None, int]]:
        """Return what was counted and is to be told now, None standing for further kinds.

        A kind that is told begins a new period; one that nobody caused again is forgotten.
        """
        told: list[tuple[KindT | None, int]] = []
        for kind, held in list(self._held.items()):
            if now < held.until_s:
                continue
            del self._held[kind]
            if held.count:
                told.append((kind, held.count))
                self._held[kind] = _Held(now + self._period_s)
        if self._others is not None and now >= self._others.until_s:
            told.append((None, self._others.count))
            self._others = None
        return told


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
