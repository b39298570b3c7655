"""The Stage1 benchmark's figures as Markdown."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from tools.bench.stage0_levels import Measured
from tools.bench.stage1_levels import Spoke
from tools.bench.tables import spread, table_row

LEAD_S: Final = 0.2
"""What a careful player waits after the first chunk."""
HEADER: Final = (
    "level",
    "sessions",
    "first call",
    "units",
    "missed",
    "failed",
    "turn's first chunk p50 / p95 / p99 / max ms",
    "later units' first chunk p50 / p95 / p99 / max ms",
    "last chunk p50 / p95 / p99 / max ms",
    "sent late p99 ms",
    "TTFT p50 / p99 ms",
    "ITL p50 / p99 ms",
    "codes of a unit p50 / p99 ms",
    "flow p50 / p99 ms",
    "vocoder p50 / p99 ms",
    "waited p50 / p99 ms",
    "batch mean / max",
    f"gaps, longest ms; with {LEAD_S * 1000:.0f} ms lead",
    "sound s per s",
    "sampling ms a step (rows)",
    "client CPU",
    "GPU GB",
)
STAGE0_HEADER: Final = (
    "Stage0",
    "sessions",
    "units",
    "missed",
    "listen p50 / p99 ms",
    "speak p50 / p95 / p99 / max ms",
    "TTFT p50 / p95 / p99 ms",
    "TPOT p50 / p95 ms",
)


def voice_row(level: Spoke) -> str:
    """Return one level's line."""
    load, good, chunks = level.load, level.good, level.chunks
    batches = [chunk.batch for chunk in chunks]
    worker = level.worker
    return table_row(
        (
            load.name,
            load.sessions,
            load.first_call_codes,
            len(level.all_units),
            level.missed,
            sum(unit.failure is not None for unit in level.all_units),
            spread(level.first_ms(of_turns=True), 50, 95, 99, 100),
            spread(level.first_ms(of_turns=False), 50, 95, 99, 100),
            spread(level.last_ms, 50, 95, 99, 100),
            spread([(one.sent_s - one.due_s) * 1000 for one in level.all_units], 99, digits=1),
            spread([unit.ttft_ms for unit in good], 50, 99, digits=1),
            spread([itl for unit in good for itl in unit.itls_ms], 50, 99, digits=2),
            spread([unit.talker_ms for unit in good if not unit.is_last], 50, 99),
            spread([chunk.flow_ms for chunk in chunks], 50, 99),
            spread([chunk.vocoder_ms for chunk in chunks], 50, 99),
            spread([chunk.waited_ms for chunk in chunks], 50, 99),
            f"{np.mean(batches):.1f} / {max(batches)}" if batches else "-",
            f"{gaps(level.gaps_s(0.0))}; {gaps(level.gaps_s(LEAD_S))}",
            f"{level.sound_s / level.wall_s:.1f}",
            f"{worker.get('sampling_ms', 0.0):.2f} ({worker.get('rows', 0.0):.1f})",
            f"{level.cpu_s / level.wall_s:.0%}",
            f"{level.used_bytes / 1e9:.1f}",
        )
    )


def gaps(found_s: Sequence[float]) -> str:
    """Return how many silences there were, and the longest in milliseconds."""
    return f"{len(found_s)}, {max(found_s, default=0.0) * 1000:.0f}"


def stage0_row(name: str, level: Measured) -> str:
    """Return how Stage0 fared in one level."""
    return table_row(
        (
            name,
            level.load.sessions,
            len(level.units),
            level.missed,
            spread(level.done_ms(speaks=False), 50, 99),
            spread(level.done_ms(speaks=True), 50, 95, 99, 100),
            spread([one.ttft_ms for one in level.metrics], 50, 95, 99),
            spread(level.tpots_ms, 50, 95, digits=2),
        )
    )
