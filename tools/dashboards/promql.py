"""Queries of Prometheus, built from the definitions of the metrics.

Rule 1: a label or value that a metric has not, or a metric read as another kind, is an error here.
Rule 2: names have `ray_` in front, as Ray's exporter shows them.
Rule 3: what several processes count is merged as the metric's definition says.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from serve_app.metrics.metric import Kind, Metric

PREFIX: Final = "ray_"
WINDOW: Final = "$__rate_interval"
"""Grafana puts in four times the distance of two scrapes, or a step of the graph."""

Where = Mapping[str, str | tuple[str, ...]]


class QueryError(ValueError):
    """A query that no series could answer; the message names the metric."""


@dataclass(frozen=True, slots=True)
class Series:
    """Series of one metric."""

    metric: Metric
    selector: str
    """What stands behind the name."""


def series(metric: Metric, where: Where | None = None) -> Series:
    """Return the series with these label values, all of them where a label is not named."""
    terms = []
    for label, wanted in (where or {}).items():
        values = (wanted,) if isinstance(wanted, str) else wanted
        unknown = set(values) - set(metric.labels.get(label, ()))
        if unknown or not values:
            raise QueryError(f"{metric.name} has no {label} of {sorted(unknown)}")
        terms.append(f'{label}="{wanted}"' if values == (wanted,) else f'{label}=~"{_any(values)}"')
    return Series(metric, "{" + ",".join(terms) + "}" if terms else "")


def rate(of: Series, per: tuple[str, ...] = (), over: str = WINDOW) -> str:
    """Return how much a counter grows a second."""
    return _summed(of, per, f"rate({_name(of, Kind.COUNTER)}[{over}])")


def increase(of: Series, per: tuple[str, ...] = (), over: str = WINDOW) -> str:
    """Return how much a counter has grown."""
    return _summed(of, per, f"increase({_name(of, Kind.COUNTER)}[{over}])")


def value(of: Series, per: tuple[str, ...] = ()) -> str:
    """Return what a gauge is now."""
    return f"{of.metric.merge.value}{_by(of, per)} ({_name(of, Kind.GAUGE)})"


def raw(of: Series) -> str:
    """Return a gauge's series as they are, one of each process."""
    return _name(of, Kind.GAUGE)


def quantile(share: float, of: Series, per: tuple[str, ...] = (), over: str = WINDOW) -> str:
    """Return the value below which a share of a histogram's values was."""
    buckets = f"rate({_name(of, Kind.HISTOGRAM, '_bucket')}[{over}])"
    return f"histogram_quantile({share:g}, sum{_by(of, ('le', *per))} ({buckets}))"


def observed(of: Series, per: tuple[str, ...] = (), over: str = WINDOW) -> str:
    """Return how many values a histogram got in that time."""
    return _summed(of, per, f"increase({_name(of, Kind.HISTOGRAM, '_count')}[{over}])")


def _summed(of: Series, per: tuple[str, ...], inner: str) -> str:
    return f"sum{_by(of, per)} ({inner})"


def _by(of: Series, per: tuple[str, ...]) -> str:
    missing = set(per) - {"le"} - set(of.metric.labels)
    if missing:
        raise QueryError(f"{of.metric.name} has no labels {sorted(missing)}")
    return f" by ({', '.join(per)})" if per else ""


def _name(of: Series, kind: Kind, suffix: str = "") -> str:
    if of.metric.kind is not kind:
        raise QueryError(f"{of.metric.name} is a {of.metric.kind.value}, not a {kind.value}")
    return f"{PREFIX}{of.metric.name}{suffix}{of.selector}"


def _any(values: tuple[str, ...]) -> str:
    return "|".join(values)
