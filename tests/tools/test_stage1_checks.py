"""What the checks of Stage1 on a device call equal, a tie and wrong; and what its worker notes."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stages.minicpmo.talker_policy import PUBLISHED_TALKER
from stages.minicpmo.talker_request import TalkerRequest
from stages.minicpmo.talker_unit import TalkerLimits
from tools.bench.stage1_outcomes import UnitSeen, compare, largest_difference

STOP = 5
EVEN = replace(PUBLISHED_TALKER, temperature=1.0, repetition_penalty=1.0)
UNIT = UnitSeen(
    sampled=(1, 2, STOP),
    is_stopped=True,
    first_position=4,
    is_first=True,
    seed=None,
    stop_masked=(False,) * 3,
)
LATER = replace(UNIT, is_first=False, first_position=9)


def rows(*values: tuple[float, ...]) -> np.ndarray:
    return np.array(values, np.float32)


CLEAR = rows((0, 9, 0, 0, 0, 0, 0), (0, 0, 9, 0, 0, 0, 0), (0, 0, 0, 0, 0, 9, 0))
CLOSE = rows((0, 9, 0, 0, 0, 0, 0), (0, 0, 9, 8.999, 0, 0, 0), (0, 0, 0, 0, 0, 9, 0))


def held(
    one: list[UnitSeen], other: list[UnitSeen], logits: np.ndarray
) -> tuple[int, int, int, int]:
    compared = compare({"a": one}, {"a": other}, {"a": [logits] * len(one)}, EVEN, STOP)
    return compared.equal, compared.ties, compared.behind_ties, len(compared.wrong)


def test_equal_units_are_equal() -> None:
    assert held([UNIT, LATER], [UNIT, LATER], CLEAR) == (2, 0, 0, 0)


@pytest.mark.parametrize(
    "other",
    [
        replace(UNIT, sampled=(1, 3, STOP)),
        replace(UNIT, sampled=(1, 2)),
        replace(UNIT, is_stopped=False),
        replace(UNIT, first_position=5),
    ],
)
def test_another_code_length_end_or_place_is_wrong(other: UnitSeen) -> None:
    assert held([UNIT], [other], CLEAR) == (0, 0, 0, 1)


def test_a_place_or_an_end_is_never_a_tie() -> None:
    other = replace(UNIT, sampled=(1, 3, STOP))
    assert held([UNIT], [other], CLOSE) == (0, 1, 0, 0)
    assert held([UNIT], [replace(other, first_position=5)], CLOSE) == (0, 0, 0, 1)
    assert held([UNIT], [replace(UNIT, is_stopped=False)], CLOSE) == (0, 0, 0, 1)


def test_behind_a_tie_nothing_is_compared_until_the_next_turn() -> None:
    parted = replace(UNIT, sampled=(1, 3, STOP))
    others = replace(LATER, sampled=(4, 4))
    assert held([UNIT, LATER, UNIT], [parted, others, UNIT], CLOSE) == (1, 1, 1, 0)


def test_a_draw_near_a_codes_share_is_a_tie_and_one_inside_of_another_is_not() -> None:
    seed = 7
    limits = TalkerLimits(stop=STOP, max_steps=26, min_steps=0, steps_without_stop=0)
    draw = TalkerRequest(limits, EVEN, seed).draw(0)
    assert draw is not None
    for share, is_tie in ((draw - 0.001, True), (draw - 0.2, False)):
        logits = np.full((1, STOP + 2), -50, np.float32)
        logits[0, 0], logits[0, 1] = np.log(share), np.log(1 - share)
        one = replace(UNIT, sampled=(1,), seed=seed, stop_masked=(False,))
        found = held([one], [replace(one, sampled=(0,))], logits)
        assert found == ((0, 1, 0, 0) if is_tie else (0, 0, 0, 1))


def test_logits_are_compared_as_long_as_what_came_before_is_equal() -> None:
    other = replace(UNIT, sampled=(1, 3, STOP))
    far = CLEAR.copy()
    far[1, 0], far[2, 0] = 0.25, 100.0
    units, others = {"a": [UNIT, LATER]}, {"a": [other, LATER]}
    apart = largest_difference(units, others, {"a": [CLEAR, CLEAR]}, {"a": [far, far]})
    assert apart == pytest.approx(0.25)


@pytest.mark.models
@pytest.mark.filterwarnings("ignore")
def test_the_worker_notes_each_rows_logits_before_a_code_is_forced(tmp_path: Path) -> None:
    from tests.stages.minicpmo.talker_drivers import DriverV2  # noqa: PLC0415 - imports vLLM
    from tools.bench.stage1_worker import MeasuredTalker  # noqa: PLC0415 - as above

    driver = DriverV2()
    limits = TalkerLimits(stop=9, max_steps=26, min_steps=0, steps_without_stop=0)
    names: dict[int, str] = {}
    for place in range(3):
        driver.add(place, TalkerRequest(limits, PUBLISHED_TALKER, None))
        names[place] = f"session{place}.1"
    runner: Any = SimpleNamespace(
        sampler=SimpleNamespace(logits_processors=[object(), driver.processor]),
        req_states=SimpleNamespace(index_to_req_id=names),
        sample=lambda hidden, batch, grammar: (hidden, batch, grammar),
    )
    worker = MeasuredTalker()
    worker.model_runner = runner
    worker.bench_begin()
    given = np.random.default_rng(3).standard_normal((2, 3, 10)).astype(np.float32)
    driver.step(dict(enumerate(given[0])))
    worker.bench_keep(is_on=True)
    driver.step(dict(enumerate(given[1])))
    batch = SimpleNamespace(num_reqs=3, num_reqs_after_padding=4)
    assert runner.sample("rows", batch, None) == ("rows", batch, None)

    worker.bench_kept(str(tmp_path / "rows.npz"))
    with np.load(tmp_path / "rows.npz") as kept:
        found = {
            (str(name), int(step)): row
            for name, step, row in zip(kept["names"], kept["steps"], kept["logits"], strict=True)
        }
    assert found.keys() == {(f"session{place}.1", 1) for place in range(3)}
    for place in range(3):
        np.testing.assert_array_equal(found[f"session{place}.1", 1][:10], given[1][place])
    assert worker.bench_take()["rows"] == 3
    assert worker.bench_shapes() == [(3, 4, 1)]
    assert worker.bench_shapes() == []
