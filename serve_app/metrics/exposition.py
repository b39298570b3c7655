"""What `GET /metrics` shows: the pages of all of Ray's exporters, merged into one.

Rule 1: what is not ours is dropped before anything is parsed; Ray's own metrics are far more.
Rule 2: of the same labels, counters and buckets of all processes are added up, gauges as their
        definition says.
Rule 3: every series of a definition is there. One that no process has shown yet is at zero.
Rule 4: a histogram has no `_sum`, since Ray's is not exact.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from serve_app.metrics.definitions import METRICS
from serve_app.metrics.metric import Kind, Merge, Metric

OURS: Final = "ray_duplex_"
VLLMS: Final = "ray_vllm_"
PREFIX: Final = "ray_"
NOISE: Final = frozenset({"Component", "NodeAddress", "SessionName", "Version", "WorkerId"})
"""Labels that Ray adds to every series; those that begin with NOISE_PREFIX too."""
NOISE_PREFIX: Final = "otel_scope_"

Labels = tuple[tuple[str, str], ...]
Series = dict[tuple[str, Labels], float]
"""Values by the sample's name and labels."""


def merged(pages: Iterable[str], *, with_vllm: bool = False) -> bytes:
    """Return one page in Prometheus' text format."""
    prefixes = (OURS, VLLMS) if with_vllm else (OURS,)
    texts = [_lines_of(page, prefixes) for page in pages]
    registry = CollectorRegistry()
    registry.register(_Families([*_defined(texts), *_vllms(texts)]))
    return generate_latest(registry)


class _Families(Collector):
    """Hands over what has been merged."""

    def __init__(self, families: list[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Family]:
        """Yield the families."""
        yield from self._families


def _lines_of(page: str, prefixes: tuple[str, ...]) -> str:
    kept = []
    for line in page.splitlines():
        name = line.split(" ", 3)[2] if line.startswith(("# HELP ", "# TYPE ")) else line
        if name.startswith(prefixes):
            kept.append(line)
    return "\n".join(kept) + "\n"


def _samples(texts: Iterable[str], prefix: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    for text in texts:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name.startswith(prefix):
                    yield sample.name.removeprefix(PREFIX), sample.labels, sample.value


def _defined(texts: list[str]) -> list[Family]:
    """Return the family of every definition."""
    merges = {name: metric.merge for metric in METRICS for name in _names(metric)}
    found: Series = {}
    for name, labels, value in _samples(texts, OURS):
        if name in merges:
            _add(found, (name, _own(labels)), value, merges[name])
    return [_family(metric, found) for metric in METRICS]


def _family(metric: Metric, found: Series) -> Family:
    # A counter's samples have a suffix that its family has not.
    name = metric.name.removesuffix("_total")
    family = Family(name, metric.help, metric.kind.value)
    for values in metric.label_sets:
        labels = dict(zip(metric.labels, values, strict=True))
        for sample_name, more in _places(metric):
            own = tuple(sorted((labels | more).items()))
            value = found.get((sample_name, own), metric.starts_at)
            family.add_sample(sample_name, labels | more, value)
    return family


def _places(metric: Metric) -> list[tuple[str, dict[str, str]]]:
    """Return the samples of each label set: their names, and what labels they have besides."""
    if metric.kind is not Kind.HISTOGRAM:
        return [(metric.name, {})]
    edges = [*(str(edge) for edge in metric.buckets), "+Inf"]
    buckets = [(f"{metric.name}_bucket", {"le": edge}) for edge in edges]
    return [*buckets, (f"{metric.name}_count", {})]


def _names(metric: Metric) -> list[str]:
    return sorted({name for name, _ in _places(metric)})


def _vllms(texts: list[str]) -> list[Family]:
    """Return vLLM's families as they are, but for Ray's labels, processes added up."""
    families: dict[str, Family] = {}
    found: dict[str, Series] = {}
    for text in texts:
        for family in text_string_to_metric_families(text):
            if not family.name.startswith(VLLMS):
                continue
            families.setdefault(family.name, Family(family.name, family.documentation, family.type))
            series = found.setdefault(family.name, {})
            for sample in family.samples:
                _add(series, (sample.name, _own(sample.labels)), sample.value, Merge.SUM)
    for name, series in found.items():
        for (sample_name, labels), value in series.items():
            families[name].add_sample(sample_name, dict(labels), value)
    return list(families.values())


def _own(labels: Mapping[str, str]) -> Labels:
    return tuple(
        sorted(
            (name, value)
            for name, value in labels.items()
            if name not in NOISE and not name.startswith(NOISE_PREFIX)
        )
    )


def _add(series: Series, place: tuple[str, Labels], value: float, merge: Merge) -> None:
    before = series.get(place)
    if before is None:
        series[place] = value
        return
    match merge:
        case Merge.SUM:
            series[place] = before + value
        case Merge.MAX:
            series[place] = max(before, value)
        case Merge.MIN:
            series[place] = min(before, value)
