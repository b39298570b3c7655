"""Queries that come in several curves, as panels want them."""

from serve_app.metrics.metric import Metric
from tools.dashboards.board import Query
from tools.dashboards.promql import Where, quantile, rate, series, value

QUANTILES = (0.5, 0.95, 0.99)


def quantiles(metric: Metric, where: Where | None = None) -> tuple[Query, ...]:
    """Return the median and the slow ends of a histogram."""
    of = series(metric, where)
    return tuple(Query(quantile(share, of), f"p{share * 100:g}") for share in QUANTILES)


def slow_end(metric: Metric, *per: str, where: Where | None = None) -> tuple[Query, ...]:
    """Return the 95th percentile, one curve for each value of the labels."""
    return (Query(quantile(0.95, series(metric, where), per), _legend(per, "p95")),)


def growth(metric: Metric, *per: str, where: Where | None = None) -> tuple[Query, ...]:
    """Return how much a counter grows a second, one curve for each value of the labels."""
    return (Query(rate(series(metric, where), per), _legend(per, "a second")),)


def level(metric: Metric, *per: str, where: Where | None = None) -> tuple[Query, ...]:
    """Return what a gauge is, one curve for each value of the labels."""
    return (Query(value(series(metric, where), per), _legend(per, "now")),)


def _legend(per: tuple[str, ...], otherwise: str) -> str:
    return " ".join(f"{{{{{label}}}}}" for label in per) or otherwise
