"""A unit as a row of the batch sees it: steps that come again, too late, or not at all."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from session.errors import StageFailed
from stages.minicpmo.policy import PUBLISHED, Decision
from stages.minicpmo.policy_request import PolicyRequest
from stages.minicpmo.row_decoder import DecodingTools, RowDecoder
from stages.minicpmo.unit_decoder import NOTHING_SAID, PUBLISHED_RULES, SpeechState
from tests.stages.minicpmo.vectors import TOKENS, vocabulary

RULES = replace(PUBLISHED_RULES, listens_at_first=0)
REQUEST = PolicyRequest("unit", None, False, NOTHING_SAID, PUBLISHED, RULES)
TOOLS = DecodingTools(TOKENS, vocabulary(), lambda tokens: "a" * len(tokens))
FIRST, SECOND, THIRD = 11, 12, 13


def looking(token: int) -> Callable[[], Decision]:
    return lambda: Decision(token, joins_history=token != TOKENS.chunk_eos)


def step(decoder: RowDecoder, number: int, token: int) -> int:
    if decoder.begin(number):
        decoder.take(looking(token))
    return decoder.answer


def test_the_last_row_shown_for_a_step_counts() -> None:
    decoder = RowDecoder(REQUEST, TOOLS)
    assert [step(decoder, at, token) for at, token in enumerate((FIRST, SECOND, THIRD))] == [
        FIRST,
        SECOND,
        THIRD,
    ]
    assert step(decoder, 1, THIRD) == THIRD
    assert step(decoder, 2, TOKENS.chunk_eos) == TOKENS.chunk_eos
    assert decoder.ended is not None
    assert decoder.ended.fed == (FIRST, THIRD)
    assert [one.token for one in decoder.decisions] == [FIRST, THIRD, TOKENS.chunk_eos]
    assert decoder.ended.speech.history == (FIRST, THIRD)


def test_an_end_that_came_of_an_earlier_row_is_taken_back() -> None:
    decoder = RowDecoder(REQUEST, TOOLS)
    assert step(decoder, 0, TOKENS.listen) == TOKENS.listen
    assert decoder.is_over
    assert step(decoder, 0, FIRST) == FIRST
    assert not decoder.is_over
    assert decoder.decisions == ()
    step(decoder, 1, TOKENS.chunk_eos)
    assert decoder.ended is not None
    assert decoder.ended.fed == (FIRST,)


def test_a_step_after_the_end_changes_nothing() -> None:
    decoder = RowDecoder(REQUEST, TOOLS)
    step(decoder, 0, TOKENS.listen)
    ended = decoder.ended
    assert not decoder.begin(1)
    assert not decoder.begin(2)
    assert (decoder.answer, decoder.ended) == (TOKENS.listen, ended)


@pytest.mark.parametrize("number", [-1, 1, 5])
def test_a_step_that_can_not_be_fails_the_unit(number: int) -> None:
    decoder = RowDecoder(REQUEST, TOOLS)
    assert not decoder.begin(number)
    assert decoder.failure is not None
    assert f"step {number}" in decoder.failure
    assert decoder.answer == TOKENS.chunk_eos
    assert not decoder.begin(0)


def test_the_first_failure_stands() -> None:
    decoder = RowDecoder(REQUEST, TOOLS)

    def useless() -> Decision:
        raise StageFailed("a row of no use")

    assert decoder.begin(0)
    decoder.take(useless)
    decoder.fail("later")
    assert (decoder.failure, decoder.ended) == ("a row of no use", None)
    assert decoder.answer == TOKENS.chunk_eos


def test_a_forced_unit_looks_at_nothing() -> None:
    speech = SpeechState(units=4, is_turn_open=True, history=(FIRST,))
    decoder = RowDecoder(replace(REQUEST, must_listen=True, speech=speech), TOOLS)
    assert decoder.begin(0)
    assert not decoder.looks
    assert decoder.history == (FIRST,)
    assert step(decoder, 0, FIRST) == TOKENS.turn_eos
    assert step(decoder, 1, FIRST) == TOKENS.listen
    assert (decoder.is_over, decoder.decisions) == (True, ())
