"""A unit's rules: every recorded scenario, the recorded decisions, and what must always hold."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.minicpmo.policy import Decision, Row, decode
from stages.minicpmo.unit_decoder import (
    NOTHING_SAID,
    PUBLISHED_RULES,
    DecodeText,
    Ended,
    Fed,
    OpenUnit,
    SpeechState,
    Tokens,
    UnitRules,
    advance,
    start_unit,
)
from tests.stages.minicpmo.vectors import (
    TOKENS,
    decode_text_of,
    load,
    settings,
    sparse_row,
    vocabulary,
)

POLICY, LLM, FREE = load("policy.json"), load("llm_units.json"), load("free_run.json")
VOCABULARY = vocabulary()
RULES = replace(PUBLISHED_RULES, listens_at_first=0)


class Unlooked(AssertionError):
    """A row was looked at that the rules do not look at."""


def decided(tokens: Iterator[int], _: Tokens) -> Decision:
    """Answer with given decisions; `chunk_eos` is taken for one of the first look."""
    try:
        token = next(tokens)
    except StopIteration:
        raise Unlooked from None
    return Decision(token, joins_history=token != TOKENS.chunk_eos)


def run_given(
    speech: SpeechState,
    tokens: Sequence[int],
    rules: UnitRules,
    decode_text: DecodeText,
    *,
    must_listen: bool,
) -> Ended:
    """Run a unit over given decisions, all of which must be used."""
    left = iter(tokens)
    unit = start_unit(speech, TOKENS, rules, must_listen=must_listen)
    while True:
        result = advance(
            unit, partial(decided, left), tokens=TOKENS, rules=rules, decode_text=decode_text
        )
        if isinstance(result, Ended):
            assert list(left) == []
            return result
        unit = result.unit


def run_rows(
    unit: OpenUnit, rows: Iterator[Row], rules: UnitRules, case: Mapping[str, Any]
) -> tuple[Ended, int]:
    """Run a unit greedily over rows; also return how many it took."""
    decode_text, taken = decode_text_of(POLICY["token_text"]), 0
    while True:
        row, taken = next(rows), taken + 1
        result = advance(
            unit,
            partial(
                decode,
                row,
                settings=settings(case["params"]),
                vocabulary=VOCABULARY,
                draws=None,
            ),
            tokens=TOKENS,
            rules=rules,
            decode_text=decode_text,
        )
        if isinstance(result, Ended):
            return result, taken
        unit = result.unit


def rows_of(case: Mapping[str, Any]) -> Iterator[Row]:
    base = POLICY["base_logit"]
    for logits in case["logits"]:
        yield sparse_row(logits, base)
    while True:
        yield sparse_row({}, base)


def as_recorded(ended: Ended) -> dict[str, Any]:
    return {
        "is_listen": ended.is_listen,
        "end_of_turn": ended.is_end_of_turn,
        "text": ended.text,
        "condition_token_ids": list(ended.condition),
        "turn_open_after": ended.speech.is_turn_open,
    }


@pytest.mark.parametrize("scenario", POLICY["scenarios"], ids=lambda one: one["name"])
def test_recorded_scenario(scenario: dict[str, Any]) -> None:
    speech = NOTHING_SAID
    for case in scenario["units"]:
        most = case["params"].get("max_new_speak_tokens_per_chunk", 20)
        rules = replace(RULES, listens_at_first=scenario["force_listen_count"], max_steps=most)
        unit = start_unit(speech, TOKENS, rules, must_listen=case["force_listen"])
        ended, taken = run_rows(unit, rows_of(case), rules, case)
        speech = ended.speech
        assert case["expect"] == as_recorded(ended) | {
            "fed": list(ended.fed),
            "closure": [ended.terminator, TOKENS.unit_end],
            "penalty_history": list(speech.history),
            "logits_used": min(taken, len(case["logits"])),
        }


def test_teacher_forced_units() -> None:
    speech = NOTHING_SAID
    for case in LLM["units"]:
        is_forced = case["scripted"] == ["FORCE"]
        # The twentieth decision of the script is never asked for.
        tokens = [] if is_forced else case["scripted"][:19]
        if case["unit"] == 8:
            # The text is full at the third token: the rest of the script is not asked for.
            tokens = tokens[:3]
        ended = run_given(
            speech, tokens, RULES, decode_text_of(LLM["token_text"]), must_listen=is_forced
        )
        assert [*ended.fed, ended.terminator, TOKENS.unit_end] == case["emitted"]
        assert as_recorded(ended) == {key: case[key] for key in as_recorded(ended)}
        speech = ended.speech


def test_free_run() -> None:
    speech, recorded = NOTHING_SAID, FREE["settings"]
    rules = replace(RULES, listens_at_first=recorded["force_listen_count"])
    for case in FREE["units"]:
        ended = run_given(
            speech,
            [decision["token"] for decision in case["decisions"]],
            rules,
            decode_text_of(FREE["token_text"]),
            must_listen=case["unit"] in recorded["force_listen_units"],
        )
        assert [*ended.fed, ended.terminator, TOKENS.unit_end] == case["emitted"]
        assert as_recorded(ended) == {key: case[key] for key in as_recorded(ended)}
        assert len(ended.text) == case["text_chars"]
        speech = ended.speech
    assert speech.units == len(FREE["units"])


def no_words(_: Tokens) -> str:
    return ""


def test_a_cut_turn_is_reported_and_only_then() -> None:
    talking = run_given(
        NOTHING_SAID,
        [TOKENS.speak, 279, TOKENS.chunk_eos],
        RULES,
        no_words,
        must_listen=False,
    )
    assert not talking.is_turn_cut
    cut = run_given(talking.speech, [], RULES, no_words, must_listen=True)
    assert cut.is_turn_cut
    assert cut.fed == (TOKENS.turn_eos,)
    again = run_given(cut.speech, [], RULES, no_words, must_listen=True)
    assert not again.is_turn_cut
    assert again.fed == ()


def test_the_first_units_listen_without_closing_a_turn() -> None:
    speech = SpeechState(units=1, is_turn_open=True, history=())
    rules = replace(RULES, listens_at_first=2)
    ended = run_given(speech, [], rules, no_words, must_listen=False)
    assert (ended.fed, ended.is_listen, ended.speech.is_turn_open) == ((), True, True)
    after = run_given(
        ended.speech, [TOKENS.listen, TOKENS.chunk_eos], rules, no_words, must_listen=False
    )
    assert after.fed == (TOKENS.tts_bos,)


def test_a_token_dropped_after_the_turns_end_opens_a_turn() -> None:
    ended = run_given(
        NOTHING_SAID,
        [TOKENS.speak, 1, TOKENS.turn_eos, 2],
        RULES,
        decode_text_of({"1": "a" * 20, "2": "b" * 8}),
        must_listen=False,
    )
    assert ended.fed == (TOKENS.speak, 1, TOKENS.turn_eos)
    assert ended.is_end_of_turn
    assert ended.speech.is_turn_open


def test_the_first_token_has_no_part_in_the_text_and_its_limit() -> None:
    ended = run_given(
        NOTHING_SAID,
        [1, 2, TOKENS.chunk_eos],
        RULES,
        decode_text_of({"1": "a" * 40, "2": "b" * 27}),
        must_listen=False,
    )
    assert ended.fed == (1, 2)
    assert ended.text == "b" * 27


def test_rules_without_a_meaning_are_refused() -> None:
    for wrong in ({"max_steps": 0}, {"max_characters": 0}, {"listens_at_first": -1}):
        with pytest.raises(ValueError, match="out of range"):
            replace(PUBLISHED_RULES, **wrong)


chosen = st.one_of(
    st.sampled_from(
        [TOKENS.listen, TOKENS.speak, TOKENS.turn_eos, TOKENS.tts_bos, TOKENS.chunk_tts_eos]
    ),
    st.integers(0, 9),
)
units = st.lists(
    st.tuples(st.booleans(), st.lists(chosen, min_size=20, max_size=20)), min_size=1, max_size=8
)


@given(units, st.integers(1, 20), st.integers(0, 3), st.integers(0, 12))
def test_what_always_holds(
    script: list[tuple[bool, list[int]]], max_steps: int, at_first: int, window: int
) -> None:
    rules = UnitRules(max_steps, 28, at_first, window)
    decode_text = decode_text_of({str(one): "word"[: one % 4 + 1] for one in range(10)})
    speech = NOTHING_SAID
    for must_listen, tokens in script:
        unit, asked = start_unit(speech, TOKENS, rules, must_listen=must_listen), iter(tokens)
        fed: list[Fed] = []
        while isinstance(step := _advanced(unit, asked, rules, decode_text), Fed):
            fed.append(step)
            unit = step.unit
        _check(step, fed, speech, rules, must_listen=must_listen)
        speech = step.speech


def _advanced(
    unit: OpenUnit, asked: Iterator[int], rules: UnitRules, decode_text: DecodeText
) -> Fed | Ended:
    calls: list[Tokens] = []

    def decide(history: Tokens) -> Decision:
        calls.append(history)
        return Decision(next(asked), joins_history=True)

    result = advance(unit, decide, tokens=TOKENS, rules=rules, decode_text=decode_text)
    assert len(calls) == unit.looks(rules)
    assert calls in ([], [unit.speech.history])
    return result


def _check(
    ended: Ended, fed: list[Fed], before: SpeechState, rules: UnitRules, *, must_listen: bool
) -> None:
    assert ended.fed == tuple(one.token for one in fed)
    joined = tuple(one.token for one in fed if one.joins_talker)
    assert joined == ended.fed[1:]
    assert ended.condition == (() if ended.is_listen else joined)
    assert ended.terminator in TOKENS.terminators
    assert not TOKENS.terminators & set(ended.fed)
    assert len(ended.speech.history) <= rules.history_window
    assert ended.speech.units == before.units + 1
    assert len(ended.text) < rules.max_characters
    is_forced = must_listen or before.units < rules.listens_at_first
    if is_forced:
        assert ended.is_listen
        assert ended.speech.history == before.history
        assert ended.fed == ((TOKENS.turn_eos,) if ended.is_turn_cut else ())
    else:
        assert len(ended.fed) < rules.max_steps
        assert not (ended.is_listen and ended.speech.is_turn_open)
    assert not (must_listen and ended.speech.is_turn_open)
