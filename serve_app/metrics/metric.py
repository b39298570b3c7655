"""What a metric is: a name, what it counts, and every label set that it can ever have.

Rule 1: label values are closed sets, so every series exists from the start, at zero. Only Ray's
        exporter shows a histogram's series no earlier than their first value; `GET /metrics` does.
Rule 2: what is not in a set counts as `other`, which is in every set that the outside can reach.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from types import MappingProxyType
from typing import Final

OTHER: Final = "other"
UNITS: Final = frozenset({"seconds", "bytes", "tokens", "ratio", "factor", "index"})
NO_LABELS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType({})


class Kind(enum.Enum):
    """How values of a metric are to be read."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Owner(enum.Enum):
    """The processes that record a metric, and show it at zero from their start."""

    GATEWAY = "gateway replicas"
    ENGINES = "the engines of both stages"
    STAGE1 = "Stage1's engines"
    EVERY = "gateway replicas and the engines of both stages"


class Merge(enum.Enum):
    """What one number for several processes is. Counters and histograms are always summed."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Metric:
    """One metric. Two of them are never the same, so each is its own key."""

    name: str
    """`duplex_<what>_<unit>`, a counter's with `_total` behind it."""
    kind: Kind
    owner: Owner
    help: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: NO_LABELS)
    """Each label's values. Of a `stage`, an engine has its own alone."""
    only: tuple[tuple[str, ...], ...] = ()
    """The label sets that there are, in the order of `labels`; empty: every combination."""
    buckets: tuple[float, ...] = ()
    """Upper edges of a histogram's buckets; the one without an edge is not among them."""
    merge: Merge = Merge.SUM
    starts_at: float = 0.0
    """What a gauge shows until it has been set."""

    @property
    def unit(self) -> str:
        """What its value is in, as its name says; empty for a mere number of things."""
        last = self.name.removesuffix("_total").rpartition("_")[2]
        return last if last in UNITS else ""

    @property
    def label_sets(self) -> tuple[tuple[str, ...], ...]:
        """Return the values of every series, in the order of `labels`."""
        return self.only or tuple(product(*self.labels.values()))

    @property
    def has_stage(self) -> bool:
        """Whether its series are those of one stage each."""
        return "stage" in self.labels

    def known(self, values: tuple[str, ...]) -> tuple[str, ...]:
        """Return the label set to count `values` under; raises ValueError where there is none."""
        if values in self.label_sets:
            return values
        guesses = product(*((value, OTHER) for value in values))
        for guess in guesses:
            if guess in self.label_sets:
                return guess
        raise ValueError(f"{self.name} has no labels {values}")


def counter(
    owner: Owner,
    name: str,
    text: str,
    *,
    labels: Mapping[str, tuple[str, ...]] = NO_LABELS,
    only: tuple[tuple[str, ...], ...] = (),
) -> Metric:
    """Return what only grows. With `only`, labels have the values that stand there."""
    columns = zip(*only, strict=True)
    values = dict(zip(labels, (tuple(dict.fromkeys(column)) for column in columns), strict=False))
    return Metric(
        name=name, kind=Kind.COUNTER, owner=owner, help=text, labels=values or labels, only=only
    )


def gauge(
    owner: Owner,
    name: str,
    text: str,
    *,
    labels: Mapping[str, tuple[str, ...]] = NO_LABELS,
    merge: Merge = Merge.SUM,
    starts_at: float = 0.0,
) -> Metric:
    """Return what has a value now."""
    return Metric(
        name=name,
        kind=Kind.GAUGE,
        owner=owner,
        help=text,
        labels=labels,
        merge=merge,
        starts_at=starts_at,
    )


def histogram(
    owner: Owner,
    name: str,
    text: str,
    *,
    buckets: tuple[float, ...],
    labels: Mapping[str, tuple[str, ...]] = NO_LABELS,
) -> Metric:
    """Return what is counted by its size."""
    return Metric(
        name=name, kind=Kind.HISTOGRAM, owner=owner, help=text, labels=labels, buckets=buckets
    )
