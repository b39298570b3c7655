"""The deterministic layer before the language model: requests with one right answer.

Rule 1: the first rule that knows the request answers it; if none does, the model speaks.
Rule 2: rules are pure. The time and what was said before are arguments.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from stages.embedded.arithmetic import answer_sum
from stages.embedded.number_words import read_number, say_number, say_ordinal, say_year
from stages.embedded.plain_words import plain_words, without_politeness
from stages.embedded.sentences import as_sentence, split_sentences

MOST_COUNTED: Final = 100
COUNT_SENTENCES: Final = 8

_AFTER_ME: Final = re.compile(
    r"^\W*(?:(?:please|okay|ok|now|and|so|(?:can|could|would|will) you)\W+)*"
    r"(?:repeat|say) after me\b\W*(.*)$",
    re.IGNORECASE | re.DOTALL,
)
_TO: Final = r"(?:up )?(?:to|two|too|2|a|the|till|until)"
"""A recogniser may write several things for a short unstressed `to`."""
_COUNTS: Final = (
    re.compile(rf"counts? (?:from (?P<first>.+?) )?{_TO} (?P<last>.+)"),
    re.compile(r"count (?:from (?P<first>.+?) )?(?:down|backwards?) to (?P<last>.+)"),
    re.compile(r"count (?:down|backwards?) from (?P<first>.+?)(?: to (?P<last>.+))?"),
    re.compile(r"count (?:down|backwards?) to (?P<last>.+?) from (?P<first>.+)"),
    re.compile(r"count from (?P<first>.+?) (?:down|backwards?) to (?P<last>.+)"),
    re.compile(r"count to (?P<first>.+?) (?:down|backwards?)(?P<last>)"),
)
_SPELL: Final = re.compile(
    r"(?:spell|how do you spell|what is the spelling of)(?: the)?(?: word)? ([a-z]+)"
)
_TIME: Final = re.compile(
    r"(?:what|tell me what) time is it|(?:what is|tell me) the (?:current )?time|what is the time"
)
_DATE: Final = re.compile(
    r"(?:what is|tell me) (?:the date|today's date|the date today|the date of today|today)"
    r"(?: today)?|what date is (?:it|today)(?: today)?|what day is (?:it|today)(?: today)?"
)
_YEAR: Final = re.compile(r"what year is (?:it|this)|what is the (?:current )?year")
_AGAIN: Final = re.compile(
    r"(?:say|repeat) (?:that|it)(?: again)?|what did you (?:just )?say|come again|pardon(?: me)?"
    r"|repeat (?:what you said|your answer)|say again"
)
_NAME: Final = re.compile(r"what is your name|who are you|what are you|what are you called")
_ABILITIES: Final = re.compile(r"what can you do|help|help me|what do you do")
_FAREWELL: Final = re.compile(r"(?:good ?bye|bye|bye bye|see you(?: later| soon)?|good night)")
_THANKS: Final = re.compile(r"(?:thank you|thanks)(?: you)?(?: (?:very|so) much| a lot)?")
_GREETING: Final = re.compile(
    r"(?:hello|hi|hey|good (?:morning|afternoon|evening))(?: there| again)?"
)
_HOW_ARE_YOU: Final = re.compile(r"(?:(?:hello|hi|hey) )?how are you(?: (?:doing|today))*")
_HEARD_ME: Final = re.compile(r"(?:(?:hello|hi|hey) )?(?:can|do) you hear me")
_STOP: Final = re.compile(r"stop(?: it| that| talking)?|be quiet|quiet|enough|never ?mind|shut up")


@dataclass(frozen=True, slots=True)
class Situation:
    """What rules may know besides the request itself."""

    now: datetime
    """Local time."""
    last_answer: str = ""
    """What the user heard of the answer before."""
    awaits_words: bool = False
    """The request before was `repeat after me`, without the words."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer in sentences."""

    sentences: tuple[str, ...]
    awaits_words: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """What the user said, as it came, as plain words, and without politeness."""

    text: str
    plain: str
    core: str
    situation: Situation


def answer_by_rule(text: str, situation: Situation) -> Reply | None:
    """Answer if a rule knows the request."""
    plain = plain_words(text)
    request = Request(text, plain, without_politeness(plain), situation)
    return next((reply for rule in _RULES if (reply := rule(request)) is not None), None)


def asks_to_repeat(text: str) -> bool:
    """Whether the user wants words repeated, whatever the words are."""
    return _AFTER_ME.match(text) is not None


def _repeat_after_me(request: Request) -> Reply | None:
    found = _AFTER_ME.match(request.text)
    words = found.group(1) if found else request.text if request.situation.awaits_words else None
    if words is None:
        return None
    if not any(character.isalnum() for character in words):
        return Reply(("Yes?",), awaits_words=True)
    return Reply(tuple(split_sentences(as_sentence(words))))


def _again(request: Request) -> Reply | None:
    if not _AGAIN.fullmatch(request.core):
        return None
    last = request.situation.last_answer
    return Reply(tuple(split_sentences(last)) or ("I have not said anything yet.",))


def _sum(request: Request) -> Reply | None:
    said = answer_sum(request.core)
    return None if said is None else Reply((said,))


def _count(request: Request) -> Reply | None:
    for form in _COUNTS:
        found = form.fullmatch(request.core)
        if found is None:
            continue
        is_down = re.search(r"\b(?:down|backwards?)\b", request.core) is not None
        first = _whole_number(found["first"], 1)
        last = _whole_number(found["last"], 1)
        if first is not None and last is not None:
            return Reply(_counted(first, last, is_down=is_down))
    return None


def _spell(request: Request) -> Reply | None:
    found = _SPELL.fullmatch(request.core)
    return None if found is None else Reply((f"{', '.join(found.group(1).upper())}.",))


def _clock(request: Request) -> Reply | None:
    now = request.situation.now
    if _TIME.fullmatch(request.core):
        return Reply((f"It is {say_time(now)}.",))
    if _DATE.fullmatch(request.core):
        day = f"{now:%A}, the {say_ordinal(now.day)} of {now:%B}, {say_year(now.year)}"
        return Reply((f"Today is {day}.",))
    if _YEAR.fullmatch(request.core):
        return Reply((f"It is the year {say_year(now.year)}.",))
    return None


def _small_talk(request: Request) -> Reply | None:
    for form, sentences in _SMALL_TALK:
        if form.fullmatch(request.core) or form.fullmatch(request.plain):
            return Reply(sentences)
    return None


_SMALL_TALK: Final = (
    (_NAME, ("My name is Duplex.", "I am a small program that listens and talks.")),
    (
        _ABILITIES,
        (
            "I can repeat after you, count, spell, do sums, and tell the time.",
            "We can also just talk, but I am not very clever.",
        ),
    ),
    (_HOW_ARE_YOU, ("I am fine, thank you.", "How are you?")),
    (_HEARD_ME, ("Yes, I can hear you.",)),
    (_GREETING, ("Hello.", "How can I help you?")),
    (_THANKS, ("You are welcome.",)),
    (_FAREWELL, ("Goodbye.",)),
    (_STOP, ("Okay.",)),
)

_RULES: Final[tuple[Callable[[Request], Reply | None], ...]] = (
    _repeat_after_me,
    _again,
    _sum,
    _count,
    _spell,
    _clock,
    _small_talk,
)


def say_time(now: datetime) -> str:
    """Say the time of day on a twelve-hour clock."""
    if now.hour < 12:
        part = "in the morning"
    elif now.hour < 18:
        part = "in the afternoon"
    else:
        part = "in the evening"
    hour = say_number((now.hour - 1) % 12 + 1)
    if now.minute == 0:
        return f"{hour} o'clock {part}"
    minute = say_number(now.minute)
    return f"{hour} {f'oh {minute}' if now.minute < 10 else minute} {part}"


def _whole_number(text: str | None, default: int) -> int | None:
    if not text:
        return default
    words = text.split()
    found = read_number(words)
    if found is None or found.words < len(words) or found.value.denominator != 1:
        return None
    return int(found.value)


def _counted(first: int, last: int, *, is_down: bool) -> tuple[str, ...]:
    if is_down and first < last:
        first, last = last, first
    step = 1 if last >= first else -1
    numbers = range(first, last + step, step)
    if len(numbers) > MOST_COUNTED:
        return (f"That is too far; I count at most {say_number(MOST_COUNTED)} numbers.",)
    size = -(-len(numbers) // COUNT_SENTENCES)
    size = max(5, -(-size // 5) * 5)
    groups = [numbers[at : at + size] for at in range(0, len(numbers), size)]
    return tuple(as_sentence(", ".join(map(say_number, group))) for group in groups)
