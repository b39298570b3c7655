"""One dashboard for each stage: its engines, its slots, and where the time of a unit goes."""

from typing import Final

from serve_app.metrics import definitions as d
from serve_app.metrics.label_values import STAGES
from tools.dashboards import panels, targets
from tools.dashboards.board import Board, Panel, Query, Row
from tools.dashboards.curves import growth, level, quantiles, slow_end
from tools.dashboards.promql import WINDOW, increase, observed, series, value

NAMES: Final = {"stage0": "Stage0", "stage1": "Stage1"}
ONE_MODEL: Final = "MiniCPM-o alone says so."


def board(stage: str) -> Board:
    """Return the dashboard of a stage."""
    rows = (_engines(stage), _units(stage), *((SPEECH,) if stage == "stage1" else (HEARING,)))
    return Board(
        uid=f"duplex-{stage}",
        title=f"Duplex: {NAMES[stage]}",
        description=f"The engines of {NAMES[stage]}, all replicas together.",
        rows=rows,
    )


def _engines(stage: str) -> Row:
    here = {"stage": stage}
    return Row(
        "Engines",
        (
            Panel(
                title="Engines that are ready",
                description="Warm engines. Below 1 nothing works.",
                unit="short",
                queries=level(d.ENGINE_UP, where=here),
                bad=1,
                bad_below=True,
            ),
            Panel(
                title="Slots",
                description="Free and taken slots, and the limit that is configured.",
                unit="short",
                queries=(
                    *level(d.STAGE_SLOTS, "state", where=here),
                    Query(value(series(d.STAGE_LIMIT, here)), "limit"),
                ),
            ),
            Panel(
                title="Memory, in positions",
                description="What sessions hold, what is set aside for them, and all there is. "
                "Zero where the model has no such memory.",
                unit="short",
                queries=level(d.KV_TOKENS, "state", where=here),
            ),
            Panel(
                title="Leases that ended",
                description="By why. `given_back` and `expired` are gateways that died or hung.",
                unit="ops",
                queries=growth(d.LEASES_ENDED, "reason", where=here),
            ),
        ),
        width=6,
    )


def _units(stage: str) -> Row:
    here = {"stage": stage}
    misses = increase(series(d.DEADLINE_MISSES, here), (), WINDOW)
    units = observed(series(d.UNIT_SECONDS, {"part": "total", **here}), (), WINDOW)
    return Row(
        "Units",
        (
            Panel(
                title="Time of a unit",
                description="As the gateway sees it.",
                unit="s",
                queries=quantiles(d.UNIT_SECONDS, {"part": "total", **here}),
            ),
            Panel(
                title="Where it goes, p95",
                description="Before the model began, in the model, and the rest.",
                unit="s",
                queries=slow_end(d.UNIT_SECONDS, "part", where=here),
            ),
            Panel(
                title="Deadline misses",
                description="Share of units that took longer than they last.",
                unit="percentunit",
                queries=(Query(f"{misses} / {units}", "missed"),),
                bad=targets.DEADLINE_MISSES,
            ),
        ),
    )


HEARING: Final = Row(
    "Hearing",
    (
        panels.DECISIONS,
        panels.UNIT_GAP,
        panels.UNIT_LAG,
    ),
)
SPEECH: Final = Row(
    "Speaking",
    (
        Panel(
            title="Sound made",
            description="Seconds of sound, a second.",
            unit="short",
            queries=growth(d.STAGE1_AUDIO),
        ),
        panels.SPEECH_FACTOR,
        Panel(
            title="Chunk, time taken by time it lasts",
            description=f"Of single chunks, in the engine. {ONE_MODEL}",
            unit="short",
            queries=quantiles(d.STAGE1_FACTOR),
            bad=targets.SPEECH_FACTOR,
        ),
        Panel(
            title="Where a chunk's time goes, p95",
            description=f"In the talker, the flow, the vocoder, and waiting. {ONE_MODEL}",
            unit="s",
            queries=slow_end(d.STAGE1_CHUNK, "part"),
        ),
        Panel(
            title="Sessions in a batch",
            description=f"Sessions whose sound was made together. {ONE_MODEL}",
            unit="short",
            queries=quantiles(d.STAGE1_BATCH),
        ),
    ),
)
STAGE_BOARDS: Final = tuple(board(stage) for stage in STAGES)
