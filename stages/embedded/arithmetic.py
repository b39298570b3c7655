"""Sums in words and digits: reads them, works them out, says them."""

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from stages.embedded.number_words import LARGEST, ReadNumber, read_number, say_number

_OPERATORS: Final = {
    ("plus",): "plus",
    ("minus",): "minus",
    ("less",): "minus",
    ("times",): "times",
    ("multiplied", "by"): "times",
    ("divided", "by"): "divided by",
    ("over",): "divided by",
}
_HOMOPHONES: Final = {"to": 2, "too": 2, "for": 4, "fore": 4, "ate": 8, "won": 1, "tree": 3}
"""What a recogniser may write for a number; believed only where a number must stand."""
_QUESTION: Final = re.compile(
    r"^(?:what is|how much is|what does|calculate|compute|work out|tell me)\s+"
)
_CLOSE: Final = re.compile(r"\s+(?:equals?|is|makes?)(?: what)?$")


@dataclass(frozen=True, slots=True)
class Sum:
    """Numbers with an operator between each two."""

    numbers: tuple[Fraction, ...]
    operators: tuple[str, ...]


def answer_sum(request: str) -> str | None:
    """Answer a request that is a sum and nothing else; `request` is in plain words."""
    found = read_sum(_CLOSE.sub("", _QUESTION.sub("", request)))
    if found is None:
        return None
    try:
        result = work_out(found)
    except ZeroDivisionError:
        return "I can not divide by zero."
    said = say_number(found.numbers[0])
    for operator, number in zip(found.operators, found.numbers[1:], strict=True):
        said += f" {operator} {say_number(number)}"
    if abs(result) >= LARGEST:
        return "That is too large for me."
    about = "about " if round(result, 3) != result else ""
    return f"{said[0].upper()}{said[1:]} is {about}{say_number(result)}."


def read_sum(text: str) -> Sum | None:
    """Read a sum of two numbers or more that takes up all of the text."""
    words = text.split()
    first = _read_operand(words)
    if first is None:
        return None
    numbers, operators = [first.value], []
    words = words[first.words :]
    while words:
        operator = next((o for o in _OPERATORS if tuple(words[: len(o)]) == o), None)
        operand = _read_operand(words[len(operator) :]) if operator else None
        if operator is None or operand is None:
            return None
        operators.append(_OPERATORS[operator])
        numbers.append(operand.value)
        words = words[len(operator) + operand.words :]
    return Sum(tuple(numbers), tuple(operators)) if operators else None


def work_out(what: Sum) -> Fraction:
    """Return the result; multiplication and division bind tighter."""
    total, term = Fraction(0), what.numbers[0]
    for operator, number in zip(what.operators, what.numbers[1:], strict=True):
        match operator:
            case "times":
                term *= number
            case "divided by":
                term /= number
            case "minus":
                total, term = total + term, -number
            case _:
                total, term = total + term, number
    return total + term


def _read_operand(words: list[str]) -> ReadNumber | None:
    found = read_number(words)
    if found is None and words and words[0] in _HOMOPHONES:
        return ReadNumber(Fraction(_HOMOPHONES[words[0]]), 1)
    return found
