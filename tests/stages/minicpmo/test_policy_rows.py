"""The policy for many rows at once answers what the policy for one row does."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
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
    chunk_eos_probability,
    decode,
)
from stages.minicpmo.policy_rows import DeviceVocabulary, RowLook, decide_rows
from tests.stages.minicpmo.vectors import load, settings, sparse_row, vocabulary

pytestmark = pytest.mark.models

CPU = torch.device("cpu")
CASES = load("policy.json")["decode_cases"]
VOCABULARY = DeviceVocabulary.build(vocabulary(), CPU)
SMALL_IDS = DecodeVocabulary(
    chunk_eos=3, turn_eos=5, im_end=7, masked=np.array([1, 3, 200], np.int64)
)
SMALL = DeviceVocabulary.build(SMALL_IDS, CPU)
NEVER_FIRST = 1 - 2**-53


def by_rows(
    rows: list[Row], looks: list[RowLook], vocabulary: DeviceVocabulary
) -> list[Decision | StageFailed]:
    logits = torch.from_numpy(np.stack(rows))
    before = logits.clone()
    answers = decide_rows(logits, looks, vocabulary)
    assert torch.equal(logits.nan_to_num(9.5), before.nan_to_num(9.5))
    return answers


def one_by_one(
    rows: list[Row], looks: list[RowLook], vocabulary: DecodeVocabulary
) -> list[Decision | None]:
    answers: list[Decision | None] = []
    for look in looks:
        try:
            answers.append(
                decode(
                    rows[look.row],
                    look.history,
                    settings=look.settings,
                    vocabulary=vocabulary,
                    draws=look.draws,
                )
            )
        except StageFailed:
            answers.append(None)
    return answers


def failures_as_none(answers: list[Decision | StageFailed]) -> list[Decision | None]:
    return [None if isinstance(one, StageFailed) else one for one in answers]


def test_all_recorded_cases_at_once() -> None:
    rows = [sparse_row(case["logits"], case["base"]) for case in CASES]
    looks = [
        RowLook(
            at,
            tuple(case["history"]),
            settings(case["params"]),
            Draws(NEVER_FIRST, 0.0) if case["mode"] == "sampling" else None,
        )
        for at, case in enumerate(CASES)
    ]
    assert by_rows(rows, looks, VOCABULARY) == [
        Decision(case["token"], joins_history=bool(case["history_after_adds"])) for case in CASES
    ]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_recorded_case_with_many_draws(case: dict[str, Any]) -> None:
    row = sparse_row(case["logits"], case["base"])
    draws = [Draws(NEVER_FIRST, (at + 0.5) / 16) for at in range(16)]
    how = settings(case["params"])
    looks = [RowLook(0, tuple(case["history"]), how, draw) for draw in draws]
    assert by_rows([row], looks, VOCABULARY) == one_by_one([row], looks, VOCABULARY.ids)


numbers = st.integers(0, 2**32 - 1).map(lambda one: one / 2**32)
how_to = st.builds(
    DecodeSettings,
    temperature=st.sampled_from([0.3, 0.7, 1.3]),
    top_k=st.sampled_from([0, 1, 2, 20, 40, 5000]),
    top_p=st.sampled_from([0.05, 0.5, 0.8, 0.999, 1.0]),
    repetition_penalty=st.sampled_from([1.0, 1.05, 0.9]),
    repetition_window=st.sampled_from([0, 3, 512]),
    turn_eos_penalty=st.sampled_from([1.0, 1.1]),
    im_end_scale=st.sampled_from([1.0, 2.0]),
    im_end_top_k=st.sampled_from([0, 0, 0, 3]),
)
asked = st.tuples(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.25, 1.0, 4.0]),
    st.lists(st.integers(0, 200), max_size=12),
    how_to,
    st.one_of(st.none(), st.builds(Draws, numbers, numbers)),
    st.sampled_from(["sound"] * 6 + ["nan", "inf", "nothing"]),
)


def made_row(seed: int, size: int, coarseness: float, flaw: str) -> Row:
    values = np.random.default_rng(seed).normal(0, 3, size)
    row = (np.round(values / coarseness) * coarseness).astype(np.float32)
    if flaw == "nothing":
        left = row[SMALL_IDS.masked].copy()
        row[:] = -np.inf
        row[SMALL_IDS.masked] = left
    elif flaw != "sound":
        row[seed % size] = np.nan if flaw == "nan" else np.inf
    return row


@given(st.integers(201, 1500), st.lists(asked, min_size=1, max_size=6))
def test_rows_of_any_kind_beside_each_other(size: int, rows_asked: list[Any]) -> None:
    rows, looks = [], []
    for at, (seed, coarseness, history, how, draws, flaw) in enumerate(rows_asked):
        rows.append(made_row(seed, size, coarseness, flaw))
        looks.append(RowLook(at, tuple(history), how, draws))
    expected = one_by_one(rows, looks, SMALL_IDS)
    assert failures_as_none(by_rows(rows, looks, SMALL)) == expected


@pytest.mark.parametrize("top_k", [0, 20, 64])
@pytest.mark.parametrize("top_p", [0.3, 0.8, 0.999])
def test_rows_of_full_size(top_k: int, top_p: float) -> None:
    how = replace(PUBLISHED, top_k=top_k, top_p=top_p)
    size = len(sparse_row({}, 0))
    # 16-bit steps: many scores are equal, at the end of the top-k as well.
    rows = [made_row(seed, size, 0.0625, "sound") for seed in range(4)]
    looks = [
        RowLook(at % 4, (9, 11, at, 9), how, Draws(0.999, (at + 0.5) / 24)) for at in range(24)
    ]
    assert by_rows(rows, looks, VOCABULARY) == one_by_one(rows, looks, VOCABULARY.ids)


def test_a_row_that_nothing_cuts_is_drawn_in_the_order_of_the_ids() -> None:
    how = replace(PUBLISHED, top_k=0, top_p=1.0)
    row = made_row(0, 201, 0.25, "sound")
    looks = [RowLook(0, (), how, Draws(NEVER_FIRST, at / 8)) for at in range(8)]
    expected = one_by_one([row], looks, SMALL_IDS)
    assert by_rows([row], looks, SMALL) == expected
    assert expected[0] == Decision(0, joins_history=True)


def test_the_first_look_draws_chunk_eos_with_its_probability() -> None:
    row = made_row(1, 400, 1.0, "sound")
    share = chunk_eos_probability(row, SMALL_IDS)
    looks = [
        RowLook(0, (), PUBLISHED, Draws(first, 0.0))
        for first in (0.0, share * 0.999, share * 1.001)
    ]
    is_ended = [
        answer == Decision(SMALL_IDS.chunk_eos, joins_history=False)
        for answer in by_rows([row], looks, SMALL)
    ]
    assert is_ended == [True, True, False]


def test_no_looks_no_answers() -> None:
    assert decide_rows(torch.zeros(2, 300), [], SMALL) == []
