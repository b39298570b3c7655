"""How long this process itself takes: counters for a benchmark, bounded and cheap."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from serve_app.metrics.definitions import GATEWAY_SECONDS
from serve_app.metrics.meter import NO_METER, Meter

KEPT_SAMPLES: Final = 4096
"""Older samples make room for newer ones."""


@dataclass(slots=True)
class Reservoir:
    """The latest durations of one kind, in seconds."""

    count: int = 0
    _recent: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT_SAMPLES))

    def add(self, seconds: float) -> None:
        """Keep one duration."""
        self.count += 1
        self._recent.append(seconds)

    def summary(self) -> dict[str, float]:
        """Return the count of all, and quantiles of the latest in milliseconds."""
        ordered = sorted(self._recent)
        if not ordered:
            return {"count": 0}
        last = len(ordered) - 1
        quantiles = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "max_ms": 1.0}
        return {"count": self.count} | {
            name: round(1000 * ordered[round(part * last)], 4) for name, part in quantiles.items()
        }


@dataclass(slots=True)
class GatewayTimings:
    """Time spent inside the gateway, over all its sessions."""

    meter: Meter = NO_METER

    frame_to_append: Reservoir = field(default_factory=Reservoir)
    """From the frame that completes a unit to the call that gives the unit to Stage0."""
    frame_to_handled: Reservoir = field(default_factory=Reservoir)
    """From any client frame to the end of its effects."""
    chunk_to_frame: Reservoir = field(default_factory=Reservoir)
    """From a chunk of speech to the last of its frames given to the socket."""

    def handle(self, seconds: float, *, has_unit: bool) -> None:
        """Note how long a frame of audio took, and whether a unit went to Stage0 with it."""
        self.frame_to_handled.add(seconds)
        self.meter.observe(GATEWAY_SECONDS, seconds, "frame_to_handled")
        if has_unit:
            self.frame_to_append.add(seconds)
            self.meter.observe(GATEWAY_SECONDS, seconds, "frame_to_append")

    def send(self, seconds: float) -> None:
        """Note how long it took to send a chunk of speech."""
        self.chunk_to_frame.add(seconds)
        self.meter.observe(GATEWAY_SECONDS, seconds, "chunk_to_frame")

    def summary(self) -> dict[str, dict[str, float]]:
        """Return what has been measured, by name."""
        return {
            "frame_to_append": self.frame_to_append.summary(),
            "frame_to_handled": self.frame_to_handled.summary(),
            "chunk_to_frame": self.chunk_to_frame.summary(),
        }
