"""What the Stage0 benchmark is told apart by: sizes, and units that count as missed or short."""

from pathlib import Path

import pytest

from session.unit import SegmentMetrics
from stages.minicpmo.config import read_config
from tools.bench.stage0_folder import PUBLISHED, write_folder

pytestmark = pytest.mark.models


def test_published_sizes_are_those_of_an_eight_billion_model(tmp_path: Path) -> None:
    from tools.bench.stage0_parts import read_values  # noqa: PLC0415 - imports torch

    write_folder(tmp_path, PUBLISHED)
    config = read_config(tmp_path)
    assert (config.llm.hidden_size, config.llm.num_hidden_layers) == (4096, 36)
    assert (config.audio.d_model, config.audio.encoder_layers) == (1024, 24)
    assert config.vision_layers == 26
    assert read_values(config) * 2 == pytest.approx(15.13e9, rel=1e-3)


def test_late_failed_and_short_units_are_counted() -> None:
    from tools.bench.stage0_levels import Load, Measured, Sent  # noqa: PLC0415 - imports torch

    whole = SegmentMetrics(ttft_ms=9.0, tpot_ms=2.0, itls_ms=(2.0,) * 19, generated_tokens=20)
    short = SegmentMetrics(ttft_ms=9.0, tpot_ms=2.0, itls_ms=(2.0,) * 3, generated_tokens=4)
    heard = SegmentMetrics(ttft_ms=9.0, tpot_ms=0.0, itls_ms=(), generated_tokens=1)
    level = Measured(
        load=Load(sessions=1, context=300, seconds=5),
        units=[
            Sent(speaks=True, late_ms=0.0, done_ms=999.0, metrics=whole),
            Sent(speaks=True, late_ms=0.0, done_ms=1001.0, metrics=whole),
            Sent(speaks=True, late_ms=0.0, done_ms=50.0, metrics=short),
            Sent(speaks=False, late_ms=0.0, done_ms=20.0, metrics=heard),
            Sent(speaks=True, late_ms=0.0, done_ms=30.0, metrics=None, failure="StageFailed()"),
        ],
        encoder_ms=[5.0],
        opening_s=1.0,
        wall_s=5.0,
        cpu_s=1.0,
        max_steps=20,
    )
    assert (level.missed, level.short) == (2, 1)
    assert level.done_ms(speaks=False) == [20.0]
    assert level.tpots_ms == [2.0, 2.0, 2.0]
    assert len(level.itls_ms) == 19 + 19 + 3
