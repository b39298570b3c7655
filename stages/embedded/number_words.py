"""Numbers as English words: reading what was heard, saying what was computed."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

LARGEST: Final = 10**12
"""Numbers from here on are not said as words."""

# fmt: off
_ONES: Final = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen",
]
_TENS: Final = {
    "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50,
    "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90,
}
# fmt: on
_SCALES: Final = {"thousand": 10**3, "million": 10**6, "billion": 10**9}
_SMALL: Final = {word: value for value, word in enumerate(_ONES)} | _TENS
_MINUS: Final = ("minus", "negative")
_DIGITS: Final = re.compile(r"-?\d+(\.\d+)?")
_IRREGULAR_ORDINALS: Final = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}


@dataclass(frozen=True, slots=True)
class ReadNumber:
    """A number found in a row of words, and how many words it took."""

    value: Fraction
    words: int


def read_number(words: Sequence[str]) -> ReadNumber | None:
    """Read the longest number that `words` begins with: lower-case words or digits."""
    if not words:
        return None
    if words[0] in _MINUS:
        found = read_number(words[1:]) if words[1:2] and words[1] not in _MINUS else None
        return found and ReadNumber(-found.value, found.words + 1)
    if _DIGITS.fullmatch(words[0]):
        return _read_scaled_digits(words)
    whole = _read_whole(words)
    if whole is None:
        return None
    return _read_decimals(whole, words)


def say_number(value: Fraction | int) -> str:
    """Say a number; a fraction is rounded to three decimals."""
    rounded = round(Fraction(value), 3)
    if rounded < 0:
        return f"minus {say_number(-rounded)}"
    whole, rest = divmod(rounded, 1)
    said = _say_whole(int(whole))
    if rest == 0:
        return said
    decimals = f"{int(rest * 1000):03d}".rstrip("0")
    return f"{said} point {' '.join(_ONES[int(digit)] for digit in decimals)}"


def say_ordinal(value: int) -> str:
    """Say a small positive number as a rank, such as twenty-first."""
    head, hyphen, last = say_number(value).rpartition("-")
    if last in _IRREGULAR_ORDINALS:
        last = _IRREGULAR_ORDINALS[last]
    elif last.endswith("y"):
        last = f"{last[:-1]}ieth"
    else:
        last = f"{last}th"
    return f"{head}{hyphen}{last}"


def say_year(year: int) -> str:
    """Say a year the way years are said, such as nineteen eighty-four."""
    century, rest = divmod(year, 100)
    if not 1100 <= year <= 9999 or year % 1000 < 10:
        return say_number(year)
    if rest == 0:
        return f"{say_number(century)} hundred"
    joined = f"oh {say_number(rest)}" if rest < 10 else say_number(rest)
    return f"{say_number(century)} {joined}"


def _say_whole(value: int) -> str:
    if value >= LARGEST:
        return str(value)
    if value < 20:
        return _ONES[value]
    if value < 100:
        tens = next(word for word, worth in _TENS.items() if worth == value // 10 * 10)
        return f"{tens}-{_ONES[value % 10]}" if value % 10 else tens
    if value < 1000:
        said = f"{_ONES[value // 100]} hundred"
        return f"{said} {_say_whole(value % 100)}" if value % 100 else said
    word, worth = next((word, worth) for word, worth in reversed(_SCALES.items()) if value >= worth)
    said = f"{_say_whole(value // worth)} {word}"
    return f"{said} {_say_whole(value % worth)}" if value % worth else said


def _read_scaled_digits(words: Sequence[str]) -> ReadNumber:
    value = Fraction(words[0])
    taken = 1
    while taken < len(words) and words[taken] in _SCALES:
        value *= _SCALES[words[taken]]
        taken += 1
    return ReadNumber(value, taken)


def _read_whole(words: Sequence[str]) -> ReadNumber | None:
    """Read such as `two hundred and five thousand three`, taking no word too many."""
    total = group = 0
    taken = 0
    last = _SCALES["thousand"]
    for position, word in enumerate(words):
        if word in _SMALL and _fits_after(last, _SMALL[word]):
            last = _SMALL[word]
            group += last
        elif word == "hundred" and 0 < group < 10:
            group, last = group * 100, 100
        elif word in _SCALES and group and (not total or _SCALES[word] < total):
            total, group, last = total + group * _SCALES[word], 0, _SCALES["thousand"]
        elif word == "a" and not taken and words[1:2] and words[1] in ("hundred", *_SCALES):
            group, last = 1, 1
        elif word == "and" and taken and last >= 100:
            continue
        else:
            break
        taken = position + 1
    return ReadNumber(Fraction(total + group), taken) if taken else None


def _fits_after(last: int, value: int) -> bool:
    """Judge whether a small number goes on with one whose last part was `last`."""
    return last >= 100 or (20 <= last < 100 and 0 < value < 10)


def _read_decimals(whole: ReadNumber, words: Sequence[str]) -> ReadNumber:
    if words[whole.words : whole.words + 1] != ["point"]:
        return whole
    digits = ""
    for word in words[whole.words + 1 :]:
        if word not in _ONES[:10]:
            break
        digits += str(_ONES.index(word))
    if not digits:
        return whole
    value = whole.value + Fraction(int(digits), 10 ** len(digits))
    return ReadNumber(value, whole.words + 1 + len(digits))
