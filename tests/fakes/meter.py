"""A meter that tests can read."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from serve_app.metrics.metric import Kind, Metric


@dataclass
class CountedMeter:
    """Keeps everything that it is told, by metric and labels; each must be one of a definition."""

    counts: Counter[tuple[str, ...]] = field(default_factory=Counter)
    seen: defaultdict[tuple[str, ...], list[float]] = field(
        default_factory=lambda: defaultdict(list)
    )
    gauges: dict[tuple[str, ...], float] = field(default_factory=dict)
    refreshed: int = 0

    def count(self, metric: Metric, *labels: str, by: float = 1.0) -> None:
        """Add to a counter."""
        assert metric.kind is Kind.COUNTER
        assert by >= 0
        self.counts[metric.name, *metric.known(labels)] += by  # type: ignore[assignment]

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Keep a histogram's value."""
        assert metric.kind is Kind.HISTOGRAM
        assert value >= 0
        self.seen[metric.name, *metric.known(labels)].append(value)

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        """Keep a gauge's newest value."""
        assert metric.kind is Kind.GAUGE
        assert labels in metric.label_sets
        self.gauges[metric.name, *labels] = value

    def refresh(self) -> None:
        """Nothing is forgotten here."""
        self.refreshed += 1

    def of(self, metric: Metric) -> dict[tuple[str, ...], float]:
        """Return a counter's values that are not zero, by their labels."""
        return {key[1:]: n for key, n in self.counts.items() if key[0] == metric.name and n}

    def values(self, metric: Metric, *labels: str) -> list[float]:
        """Return what was observed."""
        return self.seen.get((metric.name, *labels), [])

    def gauge(self, metric: Metric, *labels: str) -> float:
        """Return what a gauge is now."""
        return self.gauges[(metric.name, *labels)]
