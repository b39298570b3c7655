"""Where the time of one call into a model went."""

from collections.abc import Callable
from dataclasses import dataclass

from session.unit import SegmentMetrics, SpeechMetrics, StageTime

Now = Callable[[], float]
"""Seconds of a clock that never goes back."""


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """Begun when a call came to the door."""

    now: Now
    came_s: float

    def entered(self) -> "InModel":
        """The call enters the model."""
        return InModel(self, self.now())


@dataclass(frozen=True, slots=True)
class InModel:
    """A call that the model works on."""

    watch: Stopwatch
    entered_s: float

    def until_now(self, told: SegmentMetrics | SpeechMetrics | None) -> StageTime:
        """Return where the time went; `told` is what the model says of it."""
        match told:
            case SegmentMetrics(queued_ms=waited_ms) | SpeechMetrics(waited_ms=waited_ms):
                waited_s = waited_ms / 1000
            case _:
                waited_s = 0.0
        inside_s = self.watch.now() - self.entered_s
        waited_s = min(waited_s, inside_s)
        return StageTime(self.entered_s - self.watch.came_s + waited_s, inside_s - waited_s)


def start(now: Now | None) -> Stopwatch | None:
    """Begin; None without a clock."""
    return None if now is None else Stopwatch(now, now())
