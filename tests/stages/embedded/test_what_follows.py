"""What is fed to a conversation's memory: what is new, or all of it."""

import pytest

from stages.embedded.vllm_language_model import what_follows

START = 1
HEAD = (START, 90, 91, START, 92)


def turn(*words: int) -> tuple[int, ...]:
    return (START, *words)


def test_an_empty_memory_is_fed_the_prompt() -> None:
    assert what_follows((), HEAD, START) == HEAD


def test_a_prompt_that_goes_on_is_fed_what_is_new() -> None:
    held = HEAD + turn(10) + turn(20)
    assert what_follows(held, (*held, 2, *turn(11)), START) == (2, *turn(11))


def test_a_memory_may_remember_turns_that_the_prompt_has_no_room_for() -> None:
    held = HEAD + turn(10) + turn(20) + turn(11) + turn(21)
    prompt = HEAD + turn(11) + turn(21) + turn(12)
    assert what_follows(held, prompt, START) == turn(12)


@pytest.mark.parametrize(
    "prompt",
    [
        HEAD + turn(10) + turn(20) + turn(11),  # less was heard than was written
        HEAD + turn(10) + turn(20, 21),  # nothing is new
        HEAD + turn(30) + turn(20, 21) + turn(11),  # another question
        (START, 80, *turn(10), *turn(20, 21), *turn(11)),  # other instructions
        turn(20, 21) + turn(11),  # no instructions at all
        HEAD + turn(11),  # nothing in common but the head
    ],
)
def test_anything_else_is_fed_anew(prompt: tuple[int, ...]) -> None:
    assert what_follows(HEAD + turn(10) + turn(20, 21), prompt, START) is None
