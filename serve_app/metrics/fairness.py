"""Whether the sessions of a gateway wait alike: their mean unit times over a window, compared."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from session.ids import SessionId

WINDOW_S: Final = 60.0


@dataclass(slots=True)
class Fairness:
    """The units of the last `WINDOW_S` seconds, whosever they were."""

    _units: deque[tuple[float, SessionId, float]] = field(default_factory=deque)

    def add(self, session_id: SessionId, seconds: float, *, now: float) -> None:
        """Note that a unit of a session took so long."""
        self._forget(now)
        self._units.append((now, session_id, seconds))

    def means(self, *, now: float) -> list[float]:
        """Return each session's mean unit time."""
        self._forget(now)
        sums: dict[SessionId, tuple[float, int]] = {}
        for _, session_id, seconds in self._units:
            total, count = sums.get(session_id, (0.0, 0))
            sums[session_id] = (total + seconds, count + 1)
        return [total / count for total, count in sums.values()]

    def _forget(self, now: float) -> None:
        while self._units and self._units[0][0] < now - WINDOW_S:
            self._units.popleft()


def lag_ratio(means: list[float]) -> float:
    """Return the largest by their mean; 1 where there is nothing to compare."""
    mean = sum(means) / len(means) if means else 0.0
    return max(means) / mean if mean > 0 else 1.0


def jain_index(means: list[float]) -> float:
    """Return Jain's index: 1 when all are alike, 1/n when one has everything."""
    squares = sum(mean * mean for mean in means)
    return sum(means) ** 2 / (len(means) * squares) if squares > 0 else 1.0
