"""What the Stage1 benchmark makes of the chunks that come: silences, lateness, turns."""

from dataclasses import replace
from pathlib import Path

import pytest

from session.unit import OUTPUT_RATE_HZ
from tools.bench.stage1_player import Chunk, SpokenUnit, end_s, gaps_s, turns


def chunk(at_s: float, seconds: float = 1.0) -> Chunk:
    return Chunk(at_s, round(seconds * OUTPUT_RATE_HZ))


UNIT = SpokenUnit(is_first=False, is_last=False, due_s=10.0, sent_s=10.0)


def test_a_player_that_always_has_something_is_never_silent() -> None:
    assert gaps_s([chunk(5.0), chunk(5.9), chunk(6.5)]) == []
    assert gaps_s([chunk(5.0), chunk(6.0)]) == []
    assert gaps_s([]) == []


def test_a_silence_lasts_from_the_sounds_end_to_the_next_chunk_and_is_not_made_up_for() -> None:
    late = [chunk(5.0), chunk(6.25), chunk(7.25), chunk(8.5)]
    assert gaps_s(late) == pytest.approx([0.25, 0.25])
    assert end_s(late) == pytest.approx(9.5)


def test_a_lead_hides_the_first_lateness() -> None:
    late = [chunk(5.0), chunk(6.25), chunk(7.5)]
    assert gaps_s(late, lead_s=0.3) == pytest.approx([0.2])
    assert gaps_s(late, lead_s=0.5) == []


def test_chunks_without_sound_change_nothing() -> None:
    assert gaps_s([chunk(4.0, 0.0), chunk(5.0), chunk(9.0, 0.0), chunk(6.5)]) == pytest.approx(
        [0.5]
    )
    assert end_s([chunk(4.0, 0.0)]) is None


def test_a_unit_is_late_by_its_last_chunk_and_a_turns_end_by_its_first() -> None:
    slow = (chunk(10.9), chunk(11.1))
    assert replace(UNIT, chunks=slow).is_missed
    assert not replace(UNIT, chunks=slow, is_last=True).is_missed
    assert not replace(UNIT, chunks=slow[:1]).is_missed
    assert replace(UNIT, chunks=slow[:1], failure="StageFailed()").is_missed
    assert UNIT.is_missed


def test_the_first_sound_is_what_counts() -> None:
    unit = replace(UNIT, chunks=(chunk(10.1, 0.0), chunk(10.3)))
    assert unit.first_ms == pytest.approx(300)
    assert unit.last_ms == pytest.approx(300)
    assert replace(UNIT, chunks=(chunk(10.1, 0.0),)).first_ms is None


def test_units_are_told_apart_by_turn() -> None:
    first = replace(UNIT, is_first=True)
    assert turns([UNIT, first, UNIT, UNIT, first]) == [[UNIT], [first, UNIT, UNIT], [first]]


@pytest.mark.models
def test_a_levels_figures_are_those_of_its_units() -> None:
    from tools.bench.stage1_levels import Spoke, VoiceLoad  # noqa: PLC0415 - imports torch
    from tools.bench.stage1_tables import voice_row  # noqa: PLC0415 - as above

    begins = replace(UNIT, is_first=True, chunks=(chunk(10.2),), itls_ms=(2.0, 3.0))
    goes_on = replace(UNIT, due_s=11.0, chunks=(replace(chunk(11.5), batch=3),))
    failed = replace(UNIT, due_s=12.0, failure="StageFailed()")
    level = Spoke(VoiceLoad(2, 8, 28), [[begins, goes_on], [failed]], wall_s=4.0, cpu_s=1.0)
    assert level.missed == 1
    assert level.first_ms(of_turns=True) == pytest.approx([200])
    assert level.first_ms(of_turns=False) == pytest.approx([500])
    assert level.gaps_s(0.0) == pytest.approx([0.3])
    assert level.sound_s == pytest.approx(2.0)
    cells = voice_row(level).split(" | ")
    assert cells[:6] == ["| level", "2", "28", "3", "1", "1"]
    assert "1, 300; 1, 100" in cells
    assert "3.0 / 3" in cells


@pytest.mark.models
def test_a_setting_of_the_machines_can_be_another(tmp_path: Path) -> None:
    from tools.bench.stage1_rig import rig_settings  # noqa: PLC0415 - imports torch

    changed = rig_settings("h200", tmp_path, {"voice.max_batch": 32, "window.units": 5})
    assert (changed.voice.max_batch, changed.voice.dtype, changed.window.units) == (
        32,
        "float16",
        5,
    )
    assert rig_settings("h200", tmp_path).voice.max_batch == 16
    with pytest.raises(ValueError, match=r"voice\.batch"):
        rig_settings("h200", tmp_path, {"voice.batch": 32})
