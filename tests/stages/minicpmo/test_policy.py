"""The decode policy: every recorded case, and its law against a plain full sort."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from session.errors import StageFailed
from stages.minicpmo.policy import (
    PUBLISHED,
    Decision,
    DecodeSettings,
    DecodeVocabulary,
    Draws,
    Row,
    adjusted,
    chunk_eos_probability,
    decode,
    distribution,
)
from tests.stages.minicpmo.vectors import TOKENS, load, settings, sparse_row, vocabulary

CASES = load("policy.json")["decode_cases"]
VOCABULARY = vocabulary()
NEVER_FIRST = 1 - 2**-53
SMALL = DecodeVocabulary(chunk_eos=3, turn_eos=5, im_end=7, masked=np.array([1, 3, 200], np.int64))
rows = st.tuples(
    st.integers(0, 2**32 - 1), st.integers(201, 3000), st.sampled_from([0.25, 1.0, 4.0])
)


def made_row(seed: int, size: int, coarseness: float) -> Row:
    """Return a row with many equal logits, as 16-bit arithmetic gives them."""
    values = np.random.default_rng(seed).normal(0, 3, size)
    return (np.round(values / coarseness) * coarseness).astype(np.float32)


def by_full_sort(scores: Row, how: DecodeSettings) -> dict[int, float]:
    """Follow the words: softmax, top-k, top-p, with the whole row sorted."""
    order = [int(one) for one in np.lexsort((np.arange(len(scores)), -scores))]
    order = [one for one in order if scores[one] > -np.inf]
    if how.top_k:
        last = scores[order[min(how.top_k, len(order)) - 1]]
        order = [one for one in order if scores[one] >= last]
    scaled = scores[order].astype(np.float64) / how.temperature
    weights = np.exp(scaled - scaled.max())
    weights /= weights.sum()
    kept, mass = [], 0.0
    for one, weight in zip(order, weights, strict=True):
        if how.top_p < 1 and mass > how.top_p + 1e-9:
            break
        kept.append((one, float(weight)))
        mass += float(weight)
    total = sum(weight for _, weight in kept)
    return {one: weight / total for one, weight in kept}


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_recorded_case(case: dict[str, Any]) -> None:
    row, how = sparse_row(case["logits"], case["base"]), settings(case["params"])
    draws = Draws(NEVER_FIRST, 0.0) if case["mode"] == "sampling" else None
    decision = decode(row, tuple(case["history"]), settings=how, vocabulary=VOCABULARY, draws=draws)
    assert decision == Decision(case["token"], joins_history=bool(case["history_after_adds"]))
    if case["mode"] == "sampling":
        recorded = {int(k): v for k, v in case["second_look_distribution"].items()}
        found = distribution(adjusted(row, tuple(case["history"]), how, VOCABULARY), how)
        assert dict(zip(found.ids.tolist(), found.probabilities, strict=True)) == pytest.approx(
            recorded, abs=1e-6
        )
        expected = case["first_look_probability_of_chunk_eos"]
        assert chunk_eos_probability(row, VOCABULARY) == pytest.approx(expected, abs=1e-6)


def test_published_settings_are_the_recorded_ones() -> None:
    defaults = dict(load("policy.json")["defaults"])
    assert defaults.pop("max_new_speak_tokens_per_chunk") == 20
    assert settings(defaults) == PUBLISHED


@given(
    rows,
    st.sampled_from([0, 1, 2, 20, 40, 5000]),
    st.sampled_from([0.05, 0.5, 0.8, 0.999, 1.0]),
    st.sampled_from([0.3, 0.7, 1.3]),
)
def test_distribution_is_that_of_a_full_sort(
    row: tuple[int, int, float], top_k: int, top_p: float, temperature: float
) -> None:
    how = replace(PUBLISHED, top_k=top_k, top_p=top_p, temperature=temperature)
    scores = adjusted(made_row(*row), (4, 9, 9), how, SMALL)
    found = distribution(scores, how)
    expected = by_full_sort(scores, how)
    got = dict(zip(found.ids.tolist(), found.probabilities.tolist(), strict=True))
    assert got.keys() == expected.keys()
    assert got == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("top_k", "top_p"), [(20, 0.8), (0, 0.8), (0, 0.999), (3000, 1.0)])
def test_a_row_of_full_size_is_searched_right(seed: int, top_k: int, top_p: float) -> None:
    row = made_row(seed, len(sparse_row({}, 0)), 0.0625)
    how = replace(PUBLISHED, top_k=top_k, top_p=top_p)
    found = distribution(adjusted(row, (), how, VOCABULARY), how)
    expected = by_full_sort(adjusted(row, (), how, VOCABULARY), how)
    assert set(found.ids.tolist()) == expected.keys()


@given(rows, st.lists(st.integers(0, 200), max_size=30), st.floats(0, 1, exclude_max=True))
def test_no_masked_token_is_ever_answered(
    row: tuple[int, int, float], history: list[int], number: float
) -> None:
    logits = made_row(*row)
    logits[SMALL.masked] = 50.0
    logits[SMALL.chunk_eos] = -np.inf
    before = logits.copy()
    for draws in (None, Draws(number, number)):
        decision = decode(logits, tuple(history), settings=PUBLISHED, vocabulary=SMALL, draws=draws)
        assert decision.token not in SMALL.masked
        assert decision.joins_history
    np.testing.assert_array_equal(logits, before)


@pytest.mark.parametrize(("logit", "expected"), [(2.2, 2.0), (-2.0, -2.2), (0.0, 0.0)])
def test_the_end_of_a_turn_is_made_less_likely_on_either_side_of_zero(
    logit: float, expected: float
) -> None:
    row = np.zeros(400, np.float32)
    row[[SMALL.turn_eos, 9, 10]] = logit
    scores = adjusted(row, (9, 9), PUBLISHED, SMALL)
    assert scores[SMALL.turn_eos] == pytest.approx(expected, abs=1e-6)
    assert scores[9] == pytest.approx(logit / 1.05, abs=1e-6)
    assert scores[10] == row[10]


def test_the_first_look_draws_chunk_eos_with_its_probability() -> None:
    row = made_row(1, 400, 1.0)
    share = chunk_eos_probability(row, SMALL)
    plain = np.exp(row.astype(np.float64))
    assert share == pytest.approx(plain[SMALL.chunk_eos] / plain.sum(), rel=1e-5)
    for first, is_ended in ((0.0, True), (share * 0.999, True), (share * 1.001, False)):
        decision = decode(row, (), settings=PUBLISHED, vocabulary=SMALL, draws=Draws(first, 0.0))
        assert (decision == Decision(SMALL.chunk_eos, joins_history=False)) is is_ended


def test_even_draws_give_each_token_its_share() -> None:
    how = replace(PUBLISHED, top_p=1.0)
    found = distribution(adjusted(made_row(3, 800, 0.25), (), how, SMALL), how)
    assert len(found.ids) >= how.top_k
    draws = [found.draw((at + 0.5) / 10_000) for at in range(10_000)]
    for token, probability in zip(found.ids.tolist(), found.probabilities, strict=True):
        assert draws.count(token) == pytest.approx(10_000 * probability, abs=1.0)
    assert found.draw(NEVER_FIRST) == found.ids[-1]


def test_equal_best_logits_give_the_lowest_id() -> None:
    row = np.zeros(400, np.float32)
    decision = decode(row, (), settings=PUBLISHED, vocabulary=SMALL, draws=None)
    assert decision.token == 0


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("at", [0, 3, 399])
@pytest.mark.parametrize("draws", [None, Draws(0.0, 0.5)])
def test_a_poisoned_row_is_refused(value: float, at: int, draws: Draws | None) -> None:
    row = made_row(5, 400, 1.0)
    row[at] = value
    with pytest.raises(StageFailed):
        decode(row, (), settings=PUBLISHED, vocabulary=SMALL, draws=draws)


@pytest.mark.parametrize("draws", [None, Draws(NEVER_FIRST, 0.5)])
def test_a_row_that_the_masks_leave_empty_is_refused(draws: Draws | None) -> None:
    row: npt.NDArray[np.float32] = np.full(400, -np.inf, np.float32)
    row[[1, 200]] = 2.0
    with pytest.raises(StageFailed):
        decode(row, (), settings=PUBLISHED, vocabulary=SMALL, draws=draws)


def test_a_row_in_which_one_token_is_allowed_gives_it() -> None:
    row = np.full(151_748, -np.inf, np.float32)
    row[TOKENS.listen] = -3.0
    for draws in (None, Draws(0.0, NEVER_FIRST)):
        decision = decode(row, (), settings=PUBLISHED, vocabulary=VOCABULARY, draws=draws)
        assert decision == Decision(TOKENS.listen, joins_history=True)


@pytest.mark.parametrize(
    "wrong",
    [{"temperature": 0.0}, {"top_k": -1}, {"top_p": 0.0}, {"top_p": 1.5}, {"im_end_scale": 0.0}],
)
def test_settings_without_a_meaning_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="out of range"):
        replace(PUBLISHED, **wrong)
