"""How many lines a stranger can cause: one of a kind in a period, and then how many there were.

Rule 1: the first of a kind is written at once; those that follow within the period are counted.
Rule 2: nothing is lost silently: what was counted is told once the period is over.
Rule 3: so many kinds at once and no more; what is of a further kind is counted together, and told
        once a period too.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

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
