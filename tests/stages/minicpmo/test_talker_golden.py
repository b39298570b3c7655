"""Conditions, distributions and codes of the talker against the recorded vectors."""

from typing import Any, Final

import numpy as np
import pytest
import torch

from stages.minicpmo.config import read_config
from stages.minicpmo.talker_condition import TalkerCondition
from stages.minicpmo.talker_policy import PUBLISHED_TALKER, choose_code, code_scores
from stages.minicpmo.talker_unit import RECORDED_RULES, TalkerLimits, TalkerUnit, talker_limits
from stages.minicpmo.tiny_checkpoint import DATA
from tests.stages.minicpmo.reference_talker import (
    COLUMNS,
    RECORDED,
    STOP,
    ReferenceTalker,
    log_softmax,
)
from tests.stages.minicpmo.tiny_weights import CPU, tensors
from tests.stages.minicpmo.vectors import arrays

pytestmark = pytest.mark.models

CONFIG: Final = read_config(DATA).tts
NAMES: Final = list(RECORDED)
TURNS: Final = {
    "forced": [f"forced_{number}" for number in range(7)],
    "greedy": [f"greedy_{number}" for number in range(7)],
    "fresh": ["fresh_0"],
}


@pytest.fixture(scope="module")
def condition() -> TalkerCondition:
    return TalkerCondition.from_tensors(CONFIG, tensors(["tts."]), CPU, torch.float32)


def limits_of(unit: dict[str, Any]) -> TalkerLimits:
    limits = talker_limits(
        RECORDED_RULES,
        stop=STOP,
        is_first=unit["start_position"] == 0,
        is_last=bool(unit["end_of_turn"]),
    )
    assert limits.min_steps == unit["min_new"]
    return limits


@pytest.mark.parametrize("name", NAMES)
def test_condition(condition: TalkerCondition, name: str) -> None:
    unit = RECORDED[name]
    rows = condition.rows(unit["token_ids"].tolist(), unit["hidden"])
    assert rows.is_contiguous()
    np.testing.assert_allclose(rows, unit["condition"], atol=1e-5, rtol=0)


def test_condition_of_no_tokens(condition: TalkerCondition) -> None:
    for hidden in (None, np.zeros((0, 128), np.float32)):
        rows = condition.rows([], hidden)
        np.testing.assert_array_equal(rows, arrays("talker")["empty_condition"])


@pytest.mark.parametrize("group", list(TURNS))
def test_codes_of_a_recorded_conversation(group: str) -> None:
    talker = ReferenceTalker()
    for name in TURNS[group]:
        unit = RECORDED[name]
        if unit["start_position"] == 0:
            talker.fed = talker.fed[:0]
        assert len(talker.fed) == unit["start_position"]
        prescribed = None if group != "forced" else [*unit["codes"].tolist()]
        speak_one_unit(talker, unit, prescribed)
        assert len(talker.fed) == unit["start_position"] + len(unit["condition"]) + len(
            unit["codes"]
        )


def speak_one_unit(talker: ReferenceTalker, unit: dict[str, Any], prescribed: Any) -> None:
    """Step a unit, by its own choices or by prescribed codes; compare each step."""
    state = TalkerUnit(limits_of(unit))
    row = talker.feed(torch.from_numpy(unit["condition"]))
    for step in range(len(unit["choice"])):
        masked = STOP if state.masks_stop else None
        np.testing.assert_allclose(row[COLUMNS], unit["raw_logits"][step], atol=1e-4, rtol=0)
        assert int(row.argmax()) == unit["raw_argmax"][step]
        scores = code_scores(row, state.sampled, PUBLISHED_TALKER, masked)
        np.testing.assert_allclose(
            log_softmax(scores)[COLUMNS], unit["log_probs"][step], atol=1e-4, rtol=0
        )
        choice = choose_code(
            row, state.sampled, settings=PUBLISHED_TALKER, masked=masked, draw=None
        )
        assert choice == unit["choice"][step]
        if prescribed is None:
            state = state.take(choice)
        elif step < len(prescribed):
            state = state.take(prescribed[step])
        if len(state.sampled) > step and not state.is_over:
            row = talker.feed_code(state.sampled[-1])
    if prescribed is None:
        assert state.is_over
    assert list(state.codes) == unit["codes"].tolist()
