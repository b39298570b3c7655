"""Numbers are read as they are said, and said as they are read."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.embedded.number_words import (
    LARGEST,
    ReadNumber,
    read_number,
    say_number,
    say_ordinal,
    say_year,
)


@given(st.integers(-LARGEST + 1, LARGEST - 1))
def test_what_is_said_is_read_back(value: int) -> None:
    words = say_number(value).replace("-", " ").split()
    found = read_number(words)
    assert found is not None
    assert found == ReadNumber(Fraction(value), len(words))


@given(st.integers(0, 999_999), st.integers(1, 999))
def test_decimals_are_read_back(whole: int, thousandths: int) -> None:
    value = Fraction(whole * 1000 + thousandths, 1000)
    found = read_number(say_number(value).replace("-", " ").split())
    assert found is not None
    assert found.value == value


@pytest.mark.parametrize(
    ("text", "value", "words"),
    [
        ("two hundred and five apples", 205, 4),
        ("two hundred and some", 200, 2),
        ("a hundred", 100, 2),
        ("twenty one two", 21, 2),
        ("three four", 3, 1),
        ("zero zero", 0, 1),
        ("five hundred thousand", 500_000, 3),
        ("12 million", 12_000_000, 2),
        ("-3.5", Fraction(-7, 2), 1),
        ("minus two point five", Fraction(-5, 2), 4),
        ("two point nothing", 2, 1),
        ("seventeen hundred", 17, 1),
    ],
)
def test_the_longest_number_is_read_and_no_more(
    text: str, value: int | Fraction, words: int
) -> None:
    found = read_number(text.split())
    assert found is not None
    assert found == ReadNumber(Fraction(value), words)


@pytest.mark.parametrize(
    "text", ["", "and", "a", "apples two", "minus minus one", "point five", "and five"]
)
def test_what_is_no_number_is_not_read(text: str) -> None:
    assert read_number(text.split()) is None


def test_ranks_and_years_are_said_as_people_say_them() -> None:
    assert [say_ordinal(day) for day in (1, 2, 3, 5, 8, 9, 12, 20, 21, 30)] == [
        "first",
        "second",
        "third",
        "fifth",
        "eighth",
        "ninth",
        "twelfth",
        "twentieth",
        "twenty-first",
        "thirtieth",
    ]
    assert [say_year(year) for year in (1066, 1905, 1984, 1900, 2000, 2008, 2010, 2031)] == [
        "one thousand sixty-six",
        "nineteen oh five",
        "nineteen eighty-four",
        "nineteen hundred",
        "two thousand",
        "two thousand eight",
        "twenty ten",
        "twenty thirty-one",
    ]
