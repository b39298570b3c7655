"""Metrics through Ray's own exporter, one for each process that records any.

Rule 1: every counter and gauge of this process is there from the start, at zero.
Rule 2: a gauge is said again and again, since Ray forgets it otherwise. So a process that dies
        takes its gauges along, while what it counted stays counted.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from ray.util.metrics import Counter, Gauge, Histogram

from serve_app.metrics.definitions import METRICS
from serve_app.metrics.metric import Kind, Metric, Owner

GATEWAYS: Final = (Owner.GATEWAY, Owner.EVERY)
ENGINES: Final = {
    "stage0": (Owner.ENGINES, Owner.EVERY),
    "stage1": (Owner.ENGINES, Owner.STAGE1, Owner.EVERY),
}
"""What an engine records, by its stage."""


class RayMeter:
    """Counts what a process of `owners` is to count; with `stage`, that stage's series alone."""

    def __init__(self, owners: Iterable[Owner], stage: str | None = None) -> None:
        owned = set(owners)
        self._recorded: dict[Metric, Any] = {}
        self._tags: dict[tuple[Metric, tuple[str, ...]], dict[str, str]] = {}
        self._gauges: dict[tuple[Metric, tuple[str, ...]], float] = {}
        for metric in METRICS:
            if metric.owner in owned:
                self._begin(metric, stage)

    def count(self, metric: Metric, *labels: str, by: float = 1.0) -> None:
        """Add to a counter."""
        if by > 0:
            self._recorded[metric].inc(by, self._tags_of(metric, labels))

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Add one value to a histogram."""
        self._recorded[metric].observe(value, self._tags_of(metric, labels))

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        """Say what a gauge is now."""
        self._gauges[metric, labels] = value
        self._recorded[metric].set(value, self._tags_of(metric, labels))

    def refresh(self) -> None:
        """Say again what all gauges are."""
        for (metric, labels), value in self._gauges.items():
            self._recorded[metric].set(value, self._tags_of(metric, labels))

    def _begin(self, metric: Metric, stage: str | None) -> None:
        recorded = _recorded(metric)
        self._recorded[metric] = recorded
        for labels in own_sets(metric, stage):
            match metric.kind:
                case Kind.COUNTER:
                    # Its public `inc` takes no zero, so that nobody would know of a counter
                    # before it has counted anything.
                    recorded._record(0.0, self._tags_of(metric, labels))  # noqa: SLF001
                case Kind.GAUGE:
                    self.set(metric, metric.starts_at, *labels)
                case Kind.HISTOGRAM:
                    pass  # only a value makes it known

    def _tags_of(self, metric: Metric, labels: tuple[str, ...]) -> dict[str, str]:
        try:
            return self._tags[metric, labels]
        except KeyError:
            known = metric.known(labels)
            tags = dict(zip(metric.labels, known, strict=True))
            if known == labels:  # others come from outside, and without end
                self._tags[metric, labels] = tags
            return tags


def engine_meter(stage: str) -> RayMeter:
    """Return the meter of one of a stage's engines."""
    return RayMeter(ENGINES[stage], stage)


def own_sets(metric: Metric, stage: str | None) -> Sequence[tuple[str, ...]]:
    """Return the label sets that a process of `stage` has; None: all."""
    if stage is None or not metric.has_stage:
        return metric.label_sets
    place = list(metric.labels).index("stage")
    return [labels for labels in metric.label_sets if labels[place] == stage]


def _recorded(metric: Metric) -> Any:
    keys = tuple(metric.labels)
    match metric.kind:
        case Kind.COUNTER:
            return Counter(metric.name, metric.help, tag_keys=keys)
        case Kind.GAUGE:
            return Gauge(metric.name, metric.help, tag_keys=keys)
        case Kind.HISTOGRAM:
            return Histogram(metric.name, metric.help, list(metric.buckets), tag_keys=keys)
