"""The talker's sampling as vLLM's two model runners call it: rows, slots, and what can go wrong."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stages.minicpmo.talker_policy import PUBLISHED_TALKER, Row, choose_code
from stages.minicpmo.talker_request import EXTRA_ARG, TalkerRequest
from stages.minicpmo.talker_unit import TalkerLimits
from tests.stages.minicpmo.talker_drivers import DRIVERS, STOP, DriverV2, TalkerDriver

pytestmark = [pytest.mark.models, pytest.mark.filterwarnings("ignore")]

FREE = TalkerLimits(stop=STOP, max_steps=26, min_steps=0, steps_without_stop=0)
HELD = replace(FREE, min_steps=26)
LIKELIEST = TalkerRequest(FREE, PUBLISHED_TALKER, None)
BROKEN = STOP + 1


@pytest.fixture(params=list(DRIVERS))
def driver(request: pytest.FixtureRequest) -> TalkerDriver:
    return DRIVERS[request.param]()


def random_rows(name: int, steps: int) -> list[Row]:
    random = np.random.default_rng(name)
    return list(random.standard_normal((steps, STOP + 1)).astype(np.float32))


def alone(request: TalkerRequest, rows: list[Row]) -> list[int]:
    """Return a unit's codes by the rules for one row."""
    codes: list[int] = []
    for row in rows:
        masked = STOP if request.limits.masks_stop(len(codes)) else None
        codes.append(
            choose_code(
                row,
                codes,
                settings=request.settings,
                masked=masked,
                draw=request.draw(len(codes)),
            )
        )
    return codes


REQUESTS = [
    LIKELIEST,
    replace(LIKELIEST, seed=5),
    TalkerRequest(HELD, replace(PUBLISHED_TALKER, top_k=4, top_p=0.9), 6),
    TalkerRequest(HELD, replace(PUBLISHED_TALKER, repetition_window=3), 7),
]


def test_units_in_one_batch_are_as_alone(driver: TalkerDriver) -> None:
    rows = [random_rows(place, 24) for place in range(4)]
    for place, request in enumerate(REQUESTS):
        driver.add(place, request, old=[3] * 9)
    for step in range(24):
        driver.step({place: rows[place][step] for place in range(4)})
    for place, request in enumerate(REQUESTS):
        assert driver.running[place].sampled == alone(request, rows[place])


def test_a_unit_that_follows_in_the_same_row_begins_anew(driver: TalkerDriver) -> None:
    first, second = random_rows(1, 20), random_rows(2, 20)
    for rows, request in ((first, REQUESTS[1]), (second, REQUESTS[3])):
        driver.add(0, request, old=[1, 2, 3])
        for row in rows:
            driver.step({0: row})
        assert driver.running[0].sampled == alone(request, rows)


def test_rows_may_go_while_others_stay(driver: TalkerDriver) -> None:
    rows = random_rows(3, 10)
    driver.add(0, LIKELIEST)
    driver.add(1, REQUESTS[2])
    for row in rows[:5]:
        driver.step({0: row, 1: row})
    driver.remove(0)
    (place,) = driver.running
    for row in rows[5:]:
        driver.step({place: row})
    assert driver.running[place].sampled == alone(REQUESTS[2], rows)


def test_rows_of_nobodys_are_untouched(driver: TalkerDriver) -> None:
    driver.add(0, LIKELIEST)
    driver.add(1, None)
    row = random_rows(4, 1)[0]
    assert driver.step({0: row, 1: row})[1] == BROKEN  # by far the likeliest there
    driver.add(0, None)
    assert driver.step({0: row, 1: row}) == {0: BROKEN, 1: BROKEN}
    assert driver.processor.sizes() == {"talker_rows": 0}


@pytest.mark.parametrize("flaw", [np.nan, np.inf])
def test_a_poisoned_row_is_answered_apart(driver: TalkerDriver, flaw: float) -> None:
    sound, sick = random_rows(5, 1)[0], random_rows(5, 1)[0]
    sick[2] = flaw
    driver.add(0, LIKELIEST)
    driver.add(1, LIKELIEST)
    (code,) = alone(LIKELIEST, [sound])
    assert driver.step({0: sick, 1: sound}) == {0: BROKEN, 1: code}
    assert driver.step({0: sound, 1: sound})[0] == code  # a broken step is no code of the unit's


def test_a_step_that_can_not_be_told_apart_has_no_codes() -> None:
    driver = DriverV2()
    driver.add(0, LIKELIEST)
    driver.add(1, LIKELIEST)
    ctx: Any = SimpleNamespace(idx_mapping_np=np.array([0]), seq_lens_upper_bound_np=np.array([10]))
    import torch  # noqa: PLC0415

    answered = driver.processor.apply(torch.zeros(2, STOP + 2), ctx)
    assert answered.argmax(dim=1).tolist() == [BROKEN, BROKEN]


def test_an_unreadable_request_is_refused_in_front_and_harmless_behind(
    driver: TalkerDriver,
) -> None:
    arguments = LIKELIEST.to_extra_args()
    arguments[EXTRA_ARG]["seed"] = "soon"
    params: Any = SimpleNamespace(extra_args=arguments)
    with pytest.raises(ValueError, match="seed"):
        driver.processor.validate_params(params)
    wrong: Any = SimpleNamespace(to_extra_args=lambda: arguments)
    driver.add(0, wrong)
    assert driver.processor.sizes() == {"talker_rows": 0}
