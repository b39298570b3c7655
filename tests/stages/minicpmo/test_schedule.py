"""The vocoder is called as recorded, and no code is lost or spoken twice."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.minicpmo.schedule import (
    LOOK_AHEAD,
    MAX_CALL_CODES,
    MIN_CALL_CODES,
    SILENCE_CODE,
    VocoderCall,
    Waiting,
    left_zeros,
    schedule_unit,
)

DATA = Path(__file__).parents[2] / "data" / "minicpmo"
SCENARIOS = json.loads((DATA / "token2wav_schedule.json").read_text())["scenarios"]


def as_recorded(call: VocoderCall) -> dict[str, Any]:
    return {
        "tokens": len(call.codes),
        "starts_with": list(call.codes[:4]),
        "last_chunk": call.is_last,
        "samples": call.samples,
    }


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario["name"])
def test_the_calls_are_the_recorded_ones(scenario: dict[str, Any]) -> None:
    waiting = Waiting()
    code = 0
    for unit in scenario["units"]:
        codes = range(code, code + unit["new_tokens"])
        code = codes.stop
        calls, waiting = schedule_unit(waiting, codes, turn_ends=unit["turn_ends"])
        assert [as_recorded(call) for call in calls] == [
            {**call, "starts_with": call["starts_with"][:4]} for call in unit["calls"]
        ]
        zeros = left_zeros(calls)
        if calls:
            assert zeros == unit["left_zeros"]
            assert zeros + sum(call.samples for call in calls) == unit["samples"]
        else:
            assert unit["samples"] is None
            assert zeros == 0
        if unit["turn_ends"]:
            assert waiting == Waiting()
        else:
            assert len(waiting.codes) == unit["buffer_left"]


def test_a_turn_without_codes_ends_with_the_look_ahead_alone() -> None:
    calls, waiting = schedule_unit(Waiting(), (), turn_ends=True)
    assert calls == (VocoderCall((SILENCE_CODE,) * 3, is_first=True, is_last=True),)
    assert calls[0].samples == 3 * 960
    assert left_zeros(calls) == 0
    assert waiting == Waiting()


def test_a_unit_is_scheduled_the_same_again() -> None:
    _, waiting = schedule_unit(Waiting(), range(12), turn_ends=False)
    first = schedule_unit(waiting, range(12, 37), turn_ends=True)
    assert schedule_unit(waiting, range(12, 37), turn_ends=True) == first


@given(st.lists(st.integers(0, 104), min_size=1, max_size=6))
def test_each_code_is_spoken_once_in_order(unit_lengths: list[int]) -> None:
    waiting = Waiting()
    calls: list[VocoderCall] = []
    code = 0
    for index, length in enumerate(unit_lengths):
        turn_ends = index == len(unit_lengths) - 1
        made, waiting = schedule_unit(waiting, range(code, code + length), turn_ends=turn_ends)
        calls += made
        code += length
        assert turn_ends or len(waiting.codes) < MIN_CALL_CODES
    *looking, last = calls
    spoken = [code for call in looking for code in call.codes[:-LOOK_AHEAD]]
    assert [*spoken, *last.codes] == [*[SILENCE_CODE] * LOOK_AHEAD, *range(code)]
    assert all(MIN_CALL_CODES <= len(call.codes) <= MAX_CALL_CODES for call in looking)
    assert [call.is_first for call in calls] == [True] + [False] * len(looking)
    assert [call.is_last for call in calls] == [False] * len(looking) + [True]
    # What is held back at each join comes out at the next: no sample is lost.
    assert sum(call.samples for call in calls) == (LOOK_AHEAD + code) * 960
