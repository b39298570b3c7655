"""The panels of the shipped dashboards, and what Prometheus answers them, as Grafana would ask."""

import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from serve_app.metrics.definitions import KV_TOKENS, STAGE1_BATCH, STAGE1_CHUNK, STAGE1_FACTOR
from tests.support.prometheus import Prometheus, Range

ROOT = Path(__file__).parents[2]
DASHBOARDS = ROOT / "deploy/grafana"
STEP_S = 15
"""The panels' own least distance of two points (`interval`), which holds for the last hour."""
RATE_INTERVAL = "$__rate_interval"
MINICPMO_ALONE = {
    KV_TOKENS.name: "the scripted model has no such memory",
    STAGE1_CHUNK.name: "MiniCPM-o's Stage1 alone times its chunks",
    STAGE1_FACTOR.name: "the same",
    STAGE1_BATCH.name: "only MiniCPM-o's Stage1 has batches",
}
"""Metrics that only MiniCPM-o moves, and why the scripted model does not."""


@dataclass(frozen=True)
class DrawnPanel:
    """One graph of one dashboard."""

    board: str
    title: str
    exprs: tuple[str, ...]

    @property
    def name(self) -> str:
        """Say which it is."""
        return f"{self.board}: {self.title}"


def drawn_panels() -> list[DrawnPanel]:
    """Return every graph, with its queries as Grafana would send them."""
    return [panel for file in sorted(DASHBOARDS.glob("*.json")) for panel in _panels(file)]


def _panels(file: Path) -> Iterator[DrawnPanel]:
    for panel in json.loads(file.read_text())["panels"]:
        targets: list[dict[str, Any]] = panel.get("targets", [])
        if targets:
            assert panel["interval"] == f"{STEP_S}s"
            exprs = tuple(_filled(target["expr"]) for target in targets)
            yield DrawnPanel(file.stem, panel["title"], exprs)


def _filled(expr: str) -> str:
    """Put in what Grafana does: four scrapes, or one and a step if that is more."""
    tree = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    scrape_s = int(tree["global"]["scrape_interval"].removesuffix("s"))
    filled = expr.replace(RATE_INTERVAL, f"{max(STEP_S + scrape_s, 4 * scrape_s)}s")
    assert "$" not in filled, f"Grafana's variables in it are not known here: {filled}"
    return filled


def values(prometheus: Prometheus, expr: str, over: Range) -> list[float]:
    """Return every number that a graph of this would have; NaN and infinity are none."""
    series = prometheus.query_range(expr, over)
    return [value for one in series for value in one if math.isfinite(value)]


def is_of(expr: str, metrics: Iterable[str]) -> bool:
    """Whether a query reads one of these metrics."""
    return any(re.search(rf"\bray_{name}(_bucket|_count)?\b", expr) for name in metrics)


def moves(prometheus: Prometheus, expr: str, over: Range) -> bool:
    """Whether a graph of this has a number and is not at zero all the time."""
    return any(values(prometheus, expr, over))
