"""Special tokens come from the tokenizer's table, and every missing one is named."""

import pickle
from dataclasses import asdict

import pytest

from stages.minicpmo.special_tokens import (
    NAMES,
    SpecialTokens,
    SpecialTokensMissing,
    resolve_special_tokens,
)
from tests.stages.minicpmo.vectors import TOKENS, load, table


def test_every_field_has_the_published_name_and_id() -> None:
    context = load("context.json")
    fields = asdict(TOKENS)
    assert NAMES.keys() == fields.keys()
    assert {name: context["special_token_text"][name] for name in fields} == NAMES
    assert fields == {name: context["special_token_ids"][name] for name in fields}


def test_ids_are_those_of_the_table_and_no_constants() -> None:
    moved = {name: number for number, name in enumerate(NAMES.values(), 7)}
    assert asdict(resolve_special_tokens(moved)) == {
        field: moved[name] for field, name in NAMES.items()
    }


@pytest.mark.parametrize("name", sorted(NAMES.values()))
def test_a_missing_token_is_named(name: str) -> None:
    with pytest.raises(SpecialTokensMissing) as caught:
        resolve_special_tokens({k: v for k, v in table().items() if k != name})
    assert caught.value.missing == (name,)
    assert name in str(caught.value)


def test_all_missing_tokens_are_named_at_once() -> None:
    with pytest.raises(SpecialTokensMissing) as caught:
        resolve_special_tokens({})
    assert caught.value.missing == tuple(NAMES.values())
    assert pickle.loads(pickle.dumps(caught.value)).missing == caught.value.missing


def test_turn_eos_is_no_terminator() -> None:
    tokens = SpecialTokens(*range(16))
    assert tokens.terminators == {tokens.listen, tokens.chunk_eos, tokens.chunk_tts_eos}
