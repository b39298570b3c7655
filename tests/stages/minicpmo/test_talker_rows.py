"""The talker's sampling: one row's rules, and that many rows at once answer the same."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from session.errors import StageFailed
from stages.minicpmo.random_numbers import MOST_SEED
from stages.minicpmo.talker_policy import (
    PUBLISHED_TALKER,
    Row,
    TalkerSettings,
    choose_code,
    code_scores,
)
from stages.minicpmo.talker_request import EXTRA_ARG, TalkerRequest
from stages.minicpmo.talker_rows import CodeLooks, choose_codes
from stages.minicpmo.talker_unit import TalkerLimits

pytestmark = pytest.mark.models

STOP = 9
FREE = TalkerLimits(stop=STOP, max_steps=26, min_steps=0, steps_without_stop=0)
HELD = replace(FREE, min_steps=26)
NEVER = replace(PUBLISHED_TALKER, temperature=1.0)

logits = st.lists(
    st.integers(-40, 40).map(lambda tenths: tenths / 10), min_size=STOP + 1, max_size=STOP + 1
)
settings = st.builds(
    TalkerSettings,
    temperature=st.sampled_from([0.5, 0.8, 1.0]),
    top_k=st.sampled_from([0, 1, 3]),
    top_p=st.sampled_from([1.0, 0.85, 0.3]),
    repetition_penalty=st.sampled_from([1.0, 1.05, 1.5]),
    repetition_window=st.sampled_from([0, 2, 16]),
)
looks = st.tuples(
    logits,
    st.lists(st.integers(0, STOP), max_size=20),
    st.builds(
        TalkerRequest,
        limits=st.sampled_from([FREE, HELD]),
        settings=settings,
        seed=st.none() | st.integers(0, MOST_SEED),
    ),
)
Look = tuple[list[float], list[int], TalkerRequest]


def row(**values: float) -> Row:
    """Return a row of zeros but for `c` and a number."""
    made = np.zeros(STOP + 1, np.float32)
    for name, value in values.items():
        made[int(name[1:])] = value
    return made


def one(look: Look) -> int:
    values, codes, request = look
    step = len(codes)
    try:
        return choose_code(
            np.array(values, np.float32),
            codes,
            settings=request.settings,
            masked=STOP if request.limits.masks_stop(step) else None,
            draw=request.draw(step),
        )
    except StageFailed:
        return STOP + 1


def together(asked: list[Look]) -> list[int]:
    window = max(request.settings.repetition_window for _, _, request in asked)
    recent = torch.full((len(asked), window), -1)
    for at, (_, codes, request) in enumerate(asked):
        own = request.settings.repetition_window
        tail = codes[max(0, len(codes) - own) :]
        recent[at, window - len(tail) :] = torch.tensor(tail, dtype=torch.long)
    # The last column is the id behind the codes; nothing may come of it.
    values = torch.tensor([[*values, 100.0] for values, _, _ in asked])
    before = values.clone()
    requests = [(request, len(codes)) for _, codes, request in asked]
    built = CodeLooks.build(requests, STOP + 1, torch.device("cpu"))
    answers: list[int] = choose_codes(values, recent, built, STOP).tolist()
    assert torch.equal(values.nan_to_num(9.5), before.nan_to_num(9.5))
    return answers


@given(st.lists(looks, min_size=1, max_size=5))
def test_rows_together_are_rows_one_by_one(asked: list[Look]) -> None:
    assert together(asked) == [one(look) for look in asked]


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("flaw", [np.nan, np.inf])
def test_a_poisoned_row_fails_alone(flaw: float, seed: int | None) -> None:
    request = TalkerRequest(FREE, PUBLISHED_TALKER, seed)
    sound: Look = (row(c3=5.0).tolist(), [1, 2], request)
    sick: Look = (row(c3=5.0, c7=flaw).tolist(), [1, 2], request)
    assert one(sick) == STOP + 1
    assert together([sound, sick, sound]) == [one(sound), STOP + 1, one(sound)]


def test_a_row_without_a_possible_code_fails() -> None:
    nothing = np.full(STOP + 1, -np.inf, np.float32)
    request = TalkerRequest(HELD, PUBLISHED_TALKER, 1)
    only_stop = nothing.copy()
    only_stop[STOP] = 0
    for values in (nothing, only_stop):
        look: Look = (values.tolist(), [], request)
        assert one(look) == STOP + 1
        assert together([look]) == [STOP + 1]


def test_the_penalty_counts_and_forgets() -> None:
    scores = code_scores(row(c1=1.0, c2=-1.0, c3=1.0), [3, 1, 1, 2, 2], NEVER, None)
    penalty = 1.05
    np.testing.assert_allclose(scores[1:4], [1 / penalty**2, -(penalty**2), 1 / penalty], rtol=1e-6)
    short = replace(NEVER, repetition_window=2)
    scores = code_scores(row(c1=1.0, c2=-1.0), [1, 1, 2, 2], short, None)
    np.testing.assert_allclose(scores[1:3], [1.0, -(penalty**2)], rtol=1e-6)


def test_draws_follow_the_distribution() -> None:
    values = row(c1=2.0, c4=1.0)
    exact = np.exp(code_scores(values, [], PUBLISHED_TALKER, STOP).astype(np.float64))
    exact /= exact.sum()
    drawn = [
        choose_code(values, [], settings=PUBLISHED_TALKER, masked=STOP, draw=(at + 0.5) / 1000)
        for at in range(1000)
    ]
    np.testing.assert_allclose(np.bincount(drawn, minlength=STOP + 1) / 1000, exact, atol=2e-3)


def test_filters_leave_the_likeliest() -> None:
    values = row(c1=3.0, c2=2.0, c3=1.0)
    for filtered, left in (
        (replace(NEVER, top_k=2), {1, 2}),
        (replace(NEVER, top_p=0.01), {1}),
        (replace(NEVER, top_k=3, top_p=0.9), {1, 2}),
    ):
        drawn = {
            choose_code(values, [], settings=filtered, masked=None, draw=at / 100)
            for at in range(100)
        }
        assert drawn == left


def test_a_request_travels_as_plain_values() -> None:
    request = TalkerRequest(HELD, PUBLISHED_TALKER, MOST_SEED)
    arguments = request.to_extra_args()
    assert TalkerRequest.from_extra_args(arguments) == request
    assert TalkerRequest.from_extra_args(None) is None
    assert TalkerRequest.from_extra_args({"other": 1}) is None
    wrong: dict[str, Any] = {EXTRA_ARG: {**arguments[EXTRA_ARG], "seed": -1}}
    with pytest.raises(ValueError, match="seed"):
        TalkerRequest.from_extra_args(wrong)


def test_draws_are_those_of_the_seed_and_the_step() -> None:
    request = TalkerRequest(FREE, PUBLISHED_TALKER, 5)
    draws = [request.draw(step) for step in range(104)]
    assert len(set(draws)) == 104
    assert draws == [replace(request).draw(step) for step in range(104)]
    assert draws[0] != replace(request, seed=6).draw(0)
    assert replace(request, seed=None).draw(0) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": 0.0},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"repetition_window": -1},
    ],
)
def test_impossible_settings(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="out of range"):
        replace(PUBLISHED_TALKER, **wrong)
