"""The Stage0 benchmark's figures as Markdown, and as lines of JSON."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from tools.bench.stage0_levels import Measured
from tools.bench.tables import spread, table_row

HEADER: Final = (
    "level",
    "sessions",
    "context",
    "units",
    "missed",
    "listen p50 / p95 / p99 / max ms",
    "speak p50 / p95 / p99 / max ms",
    "encoder p50 / p99 ms",
    "TTFT p50 / p95 / p99 ms",
    "TPOT p50 / p95 ms",
    "TPOT ÷ floor",
    "ITL p50 / p99 ms",
    "units/s",
    "client CPU",
    "sent late p99 ms",
    "policy + tap ms a step (look, tap)",
    "ended early",
)


def level_row(level: Measured, floor_ms: float | None) -> str:
    """Return one level's line; a floor is the least time that a token can take."""
    load, metrics, worker = level.load, level.metrics, level.worker
    tpots = level.tpots_ms
    ratio = "-" if floor_ms is None or not tpots else f"{np.median(tpots) / floor_ms:.2f}"
    steps = f"{worker['policy_ms']:.2f} ({worker['look_ms']:.2f}, {worker['keep_ms']:.2f})"
    return table_row(
        (
            load.name,
            load.sessions,
            load.context,
            len(level.units),
            level.missed,
            spread(level.done_ms(speaks=False), 50, 95, 99, 100),
            spread(level.done_ms(speaks=True), 50, 95, 99, 100),
            spread(level.encoder_ms, 50, 99, digits=1),
            spread([one.ttft_ms for one in metrics], 50, 95, 99),
            spread(tpots, 50, 95, digits=2),
            ratio,
            spread(level.itls_ms, 50, 99, digits=1),
            f"{len(level.good) / level.wall_s:.1f}",
            f"{level.cpu_s / level.wall_s:.0%}",
            spread([one.late_ms for one in level.units], 99, digits=1),
            steps,
            level.short,
        )
    )


class Notes:
    """A file of JSON lines beside what is printed; without a path there is none."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def add(self, kind: str, values: Mapping[str, Any]) -> None:
        """Write one line."""
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"kind": kind, **values}) + "\n")

    def add_level(self, level: Measured) -> None:
        """Write a level with all of its units."""
        units = [
            (one.speaks, one.late_ms, one.done_ms, one.failure)
            + (() if one.metrics is None else (one.metrics.ttft_ms, one.metrics.tpot_ms))
            for one in level.units
        ]
        load = level.load
        self.add(
            "level",
            {
                "name": load.name,
                "sessions": load.sessions,
                "context": load.context,
                "seconds": load.seconds,
                "opening_s": level.opening_s,
                "wall_s": level.wall_s,
                "cpu_s": level.cpu_s,
                "missed": level.missed,
                "ended_early": level.short,
                "worker": level.worker,
                "encoder_ms": list(level.encoder_ms),
                "itls_ms": level.itls_ms,
                "units": units,
            },
        )
