"""A unit of the talker's: budgets, where it may stop, what is spoken of it."""

import pytest

from stages.minicpmo.talker_unit import (
    RECORDED_RULES,
    SERVING_RULES,
    TalkerLimits,
    TalkerRules,
    TalkerUnit,
    talker_limits,
)

STOP = 6561


def limits(rules: TalkerRules, *, is_first: bool = False, is_last: bool = False) -> TalkerLimits:
    return talker_limits(rules, stop=STOP, is_first=is_first, is_last=is_last)


def sampled(unit: TalkerUnit, *codes: int) -> TalkerUnit:
    for code in codes:
        unit = unit.take(code)
    return unit


@pytest.mark.parametrize("rules", [RECORDED_RULES, SERVING_RULES])
def test_a_unit_within_a_turn_is_one_second(rules: TalkerRules) -> None:
    unit = sampled(TalkerUnit(limits(rules)), *range(25))
    assert not unit.is_over
    assert all(unit.limits.masks_stop(step) for step in range(26))
    with pytest.raises(ValueError, match="no code that step 25"):
        unit.take(STOP)
    unit = unit.take(25)
    assert unit.is_over
    assert unit.codes == tuple(range(25))
    with pytest.raises(ValueError, match="over after 26"):
        unit.take(1)


@pytest.mark.parametrize("rules", [RECORDED_RULES, SERVING_RULES])
def test_the_first_unit_may_stop_at_once_and_has_one_second(rules: TalkerRules) -> None:
    unit = TalkerUnit(limits(rules, is_first=True))
    assert sampled(unit, STOP).codes == ()
    assert sampled(unit, 5, 6, STOP).codes == (5, 6)
    assert sampled(unit, *[7] * 26).codes == (7,) * 25


def test_the_last_unit_as_recorded_is_cut_at_a_second() -> None:
    unit = TalkerUnit(limits(RECORDED_RULES, is_last=True))
    assert not any(unit.limits.masks_stop(step) for step in range(26))
    assert sampled(unit, *[7] * 26).is_over


def test_the_last_unit_in_service_has_four_seconds_without_short_rests() -> None:
    unit = TalkerUnit(limits(SERVING_RULES, is_last=True))
    held = [step for step in range(104) if unit.limits.masks_stop(step)]
    assert held == [*range(25, 30), *range(50, 55), *range(75, 80), *range(100, 104)]
    assert sampled(unit, *[7] * 30, STOP).codes == (7,) * 30
    whole = sampled(unit, *[7] * 104)
    assert whole.is_over
    assert len(whole.codes) == 103


def test_a_unit_that_is_first_and_last_is_a_last_one() -> None:
    both = limits(SERVING_RULES, is_first=True, is_last=True)
    assert both == limits(SERVING_RULES, is_last=True)


def test_what_is_no_code_is_refused() -> None:
    unit = TalkerUnit(limits(RECORDED_RULES, is_first=True))
    for code in (-1, unit.limits.broken):
        with pytest.raises(ValueError, match="no code"):
            unit.take(code)


@pytest.mark.parametrize("wrong", [(0, 26, 5), (26, 0, 5), (26, 104, 26), (26, 104, -1)])
def test_impossible_rules(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="out of range"):
        TalkerRules(*wrong)
