"""The deterministic layer: which request gets which answer, as one table."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.embedded.number_words import say_number
from stages.embedded.rules import COUNT_SENTENCES, Reply, Situation, answer_by_rule

MONDAY = Situation(datetime(2025, 3, 3, 15, 5, tzinfo=UTC), last_answer="One, two,")


def answer(text: str, situation: Situation = MONDAY) -> str | None:
    reply = answer_by_rule(text, situation)
    return None if reply is None else " ".join(reply.sentences)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ("Repeat after me: the weather is nice today", "The weather is nice today."),
        ("Please, repeat after me. Hello there! How are you?", "Hello there! How are you?"),
        ("Can you say after me, one two three?", "One two three?"),
        ("Repeat after me, what is two plus two", "What is two plus two."),
        ("What is two plus three?", "Two plus three is five."),
        ("What's 2 + 3?", "Two plus three is five."),
        ("2+3", "Two plus three is five."),
        ("What is to plus for?", "Two plus four is six."),
        ("Hi, how much is twelve times eleven?", "Twelve times eleven is one hundred thirty-two."),
        ("Calculate 7x6 please.", "Seven times six is forty-two."),
        ("10-4", "Ten minus four is six."),
        ("What is 10 - 4 - 3?", "Ten minus four minus three is three."),
        (
            "What is 1,000 divided by 8?",
            "One thousand divided by eight is one hundred twenty-five.",
        ),
        ("12 / 5", "Twelve divided by five is two point four."),
        (
            "what is 100 divided by 7",
            "One hundred divided by seven is about fourteen point two eight six.",
        ),
        ("Two plus three times four equals?", "Two plus three times four is fourteen."),
        ("minus five plus three", "Minus five plus three is minus two."),
        ("What is 1.5 plus 1.5?", "One point five plus one point five is three."),
        ("What is five divided by zero?", "I can not divide by zero."),
        ("999999999999 times 999999999999", "That is too large for me."),
        ("Count to three.", "One, two, three."),
        ("Count a three", "One, two, three."),
        ("Counts two 3.", "One, two, three."),
        (
            "Could you count from 8 to 14, please?",
            "Eight, nine, ten, eleven, twelve. Thirteen, fourteen.",
        ),
        ("Count down from ten", "Ten, nine, eight, seven, six. Five, four, three, two, one."),
        ("Count backwards from 5 to 2", "Five, four, three, two."),
        ("Count to 3 backwards", "Three, two, one."),
        ("Count to five thousand", "That is too far; I count at most one hundred numbers."),
        ("Spell the word banana.", "B, A, N, A, N, A."),
        ("How do you spell cat?", "C, A, T."),
        ("What time is it?", "It is three oh five in the afternoon."),
        ("Tell me the time, please.", "It is three oh five in the afternoon."),
        ("What's today's date?", "Today is Monday, the third of March, twenty twenty-five."),
        ("What day is it today?", "Today is Monday, the third of March, twenty twenty-five."),
        ("What year is it?", "It is the year twenty twenty-five."),
        ("What is your name?", "My name is Duplex. I am a small program that listens and talks."),
        ("Say that again.", "One, two,"),
        ("Can you repeat that, please?", "One, two,"),
        ("Hello!", "Hello. How can I help you?"),
        ("Hello, how are you?", "I am fine, thank you. How are you?"),
        ("Thank you very much.", "You are welcome."),
        ("Good-bye!", "Goodbye."),
        ("Stop!", "Okay."),
        ("Hello, can you hear me?", "Yes, I can hear you."),
    ],
)
def test_requests_with_one_right_answer(request_: str, expected: str) -> None:
    assert answer(request_) == expected


@pytest.mark.parametrize(
    "request_",
    [
        "",
        "What is the capital of France?",
        "What is love?",
        "What is five?",
        "Two plus",
        "Two plus three apples",
        "Count sheep",
        "Count the apples",
        "Count to the moon",
        "Spell it out for me in a long letter",
        "What time does the train leave?",
        "I said hello to her yesterday",
        "He told me to stop",
        "你好",
    ],
)
def test_everything_else_is_left_to_the_language_model(request_: str) -> None:
    assert answer(request_) is None


@pytest.mark.parametrize(
    ("hour", "minute", "said"),
    [
        (0, 0, "twelve o'clock in the morning"),
        (9, 30, "nine thirty in the morning"),
        (12, 1, "twelve oh one in the afternoon"),
        (23, 59, "eleven fifty-nine in the evening"),
    ],
)
def test_the_clock_is_read_on_twelve_hours(hour: int, minute: int, said: str) -> None:
    situation = Situation(datetime(2025, 3, 3, hour, minute, tzinfo=UTC))
    assert answer("What time is it?", situation) == f"It is {said}."


def test_words_to_repeat_may_come_later() -> None:
    reply = answer_by_rule("Repeat after me.", MONDAY)
    assert reply == Reply(("Yes?",), awaits_words=True)
    waiting = Situation(MONDAY.now, awaits_words=True)
    assert answer("what is two plus three", waiting) == "What is two plus three."


def test_nothing_was_said_before_the_first_answer() -> None:
    assert answer("Say that again.", Situation(MONDAY.now)) == "I have not said anything yet."


@given(st.integers(1, 100), st.booleans())
def test_a_count_has_every_number_once_and_few_sentences(last: int, is_down: bool) -> None:
    request_ = f"Count down from {last}" if is_down else f"Count to {last}"
    reply = answer_by_rule(request_, MONDAY)
    assert reply is not None
    said = " ".join(reply.sentences).lower().replace(".", ",").rstrip(",").split(", ")
    numbers = range(last, 0, -1) if is_down else range(1, last + 1)
    assert said == [say_number(number) for number in numbers]
    assert len(reply.sentences) <= COUNT_SENTENCES
    assert last <= 10 or len(reply.sentences) > 2


@given(st.text(max_size=60), st.booleans())
def test_rules_never_fail_and_never_answer_nothing(text: str, awaits_words: bool) -> None:
    reply = answer_by_rule(text, Situation(MONDAY.now, "", awaits_words))
    assert reply is None or all(sentence.strip() for sentence in reply.sentences)
    assert reply is None or reply.sentences
