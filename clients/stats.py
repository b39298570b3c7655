"""Small summaries of measured values."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Summary:
    """Count, mean, median, 95th percentile and maximum; None where there are no values."""

    count: int
    mean: float | None
    p50: float | None
    p95: float | None
    max: float | None


@dataclass(frozen=True, slots=True)
class TailSummary(Summary):
    """A summary of many values, with the 99th percentile."""

    p99: float | None


def summarize(values: Sequence[float]) -> Summary:
    """Summarise values, rounded to microseconds if they are milliseconds."""
    if not values:
        return Summary(0, None, None, None, None)
    mean = round(math.fsum(values) / len(values), 3)
    p50, p95 = percentile(values, 50), percentile(values, 95)
    return Summary(len(values), mean, p50, p95, round(max(values), 3))


def summarize_tail(values: Sequence[float]) -> TailSummary:
    """Summarise values of which the tail matters."""
    s = summarize(values)
    p99 = percentile(values, 99) if values else None
    return TailSummary(s.count, s.mean, s.p50, s.p95, s.max, p99)


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile, interpolated between its two neighbours. `values` is not empty."""
    ordered = sorted(values)
    position = (len(ordered) - 1) * percent / 100
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return round(ordered[below] + (ordered[above] - ordered[below]) * (position - below), 3)
