"""A function's arguments, taken from an utterance as their JSON schema wants them.

Rule 1: a parameter with fixed values gets the one that is said; a number gets the next number that
        is said; a text gets the words after in, for, of, at or about. Whatever has been used for
        one parameter is not used for another.
Rule 2: words that only say what the function or the parameter is about are no text of the user's.
Rule 3: a parameter that can not be filled gets its default, or null where its schema allows that,
        or is left out where it is not required. Otherwise the function can not be called.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

from stages.embedded.number_words import read_number
from stages.embedded.plain_words import plain_words, stem
from stages.embedded.tool_outputs import name_in_words

Schema = dict[str, Any]

_OPENS: Final = frozenset(("in", "for", "of", "at", "about"))
_ENDS: Final = _OPENS | frozenset(
    (
        "by",
        "currently",
        "from",
        "is",
        "like",
        "on",
        "please",
        "right",
        "than",
        "to",
        "using",
        "with",
    )
)
_TIMES: Final = frozenset(("now", "today", "tomorrow", "tonight", "yesterday"))
_ARTICLES: Final = frozenset(("the", "a", "an", "my", "our", "your"))
_NOBODY: Final = frozenset(("me", "us", "you", "it", "that", "this", "them", "here", "there"))
_EDGES: Final = ' \t\n.,;:!?"()[]\u2026\u201c\u201d'
_SENTENCE_ENDS: Final = ("?", "!", ".", ";", "\u2026")
_MISSING: Final = object()


@dataclass(slots=True)
class _Said:
    """What of the utterance has not been used yet."""

    plain: str
    numbers: list[int | float]
    phrases: list[str]
    topic: frozenset[str] = field(default_factory=frozenset)


def fill_arguments(parameters: str, text: str, topic: frozenset[str]) -> str | None:
    """Return the arguments as JSON text, or None where a required one can not be filled.

    `topic` are the words that say what the function is about.
    """
    schema = _object(json.loads(parameters))
    properties = {name: _object(each) for name, each in _object(schema.get("properties")).items()}
    required = schema.get("required")
    needed = [name for name in properties if isinstance(required, list) and name in required]
    others = [name for name in properties if name not in needed]
    said = _Said(plain_words(text), _numbers(text), _phrases(text), topic)
    values: dict[str, object] = {}
    for kinds in (("enum",), ("integer", "number"), ("string",)):
        for name in (*needed, *others):
            if _kind(properties[name]) in kinds:
                values[name] = _value(_taken(name, properties[name]), said)
    for name, each in properties.items():
        if values.get(name, _MISSING) is _MISSING:
            values[name] = _otherwise(each, is_needed=name in needed)
    if any(values[name] is _MISSING for name in needed):
        return None
    given = {name: values[name] for name in properties if values[name] is not _MISSING}
    return json.dumps(given, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class _Parameter:
    name: str
    schema: Schema
    kind: str


def _taken(name: str, schema: Schema) -> _Parameter:
    return _Parameter(name, _main(schema), _kind(schema))


def _object(value: object) -> Schema:
    return value if isinstance(value, dict) else {}


def _main(schema: Schema) -> Schema:
    """Return the alternative that is not null, for a parameter that may be null."""
    for word in ("anyOf", "oneOf"):
        options = schema.get(word)
        if isinstance(options, list):
            named = [_object(each) for each in options]
            return next((each for each in named if each.get("type") != "null"), {})
    return schema


def _kind(schema: Schema) -> str:
    main = _main(schema)
    if isinstance(main.get("enum"), list) or "const" in main:
        return "enum"
    kind = main.get("type")
    if isinstance(kind, list):
        kind = next((each for each in kind if each != "null"), "")
    return kind if isinstance(kind, str) else ""


def _may_be_null(schema: Schema) -> bool:
    kinds = schema.get("type")
    if isinstance(kinds, list) and "null" in kinds:
        return True
    options = [*_list(schema.get("anyOf")), *_list(schema.get("oneOf"))]
    return any(_object(each).get("type") == "null" for each in options)


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _otherwise(schema: Schema, *, is_needed: bool) -> object:
    if "default" in schema:
        return schema["default"] if is_needed else _MISSING
    return None if is_needed and _may_be_null(schema) else _MISSING


def _value(parameter: _Parameter, said: _Said) -> object:
    match parameter.kind:
        case "enum":
            return _named_value(parameter.schema, said)
        case "integer" | "number":
            return _number(parameter, said)
        case _:
            return _phrase(parameter.name, said)


def _named_value(schema: Schema, said: _Said) -> object:
    """Return the longest of the values whose words are said."""
    if "const" in schema:
        return schema["const"]
    for value in sorted(_list(schema.get("enum")), key=lambda each: len(str(each)), reverse=True):
        words = plain_words(str(value).replace("_", " "))
        if words and re.search(rf"\b{re.escape(words)}\b", said.plain):
            said.phrases = [rest for each in said.phrases if (rest := _without(each, words))]
            return value
    return _MISSING


def _without(phrase: str, words: str) -> str:
    """Return a phrase without the words of a value that is used already."""
    return " ".join(word for word in phrase.split() if plain_words(word) not in words.split())


def _number(parameter: _Parameter, said: _Said) -> object:
    low, high = parameter.schema.get("minimum"), parameter.schema.get("maximum")
    for place, number in enumerate(said.numbers):
        if parameter.kind == "integer" and not isinstance(number, int):
            continue
        if isinstance(low, int | float) and number < low:
            continue
        if isinstance(high, int | float) and number > high:
            continue
        del said.numbers[place]
        said.phrases = [each for each in said.phrases if not _begins_with_number(each)]
        return number
    return _MISSING


def _phrase(name: str, said: _Said) -> object:
    about = said.topic | {stem(word) for word in name_in_words(name).split()}
    for place, phrase in enumerate(said.phrases):
        words = phrase.split()
        while words and (words[0] in _ARTICLES or stem(words[0].lower()) in about):
            del words[0]
        if any(stem(plain_words(word)) not in about | _NOBODY for word in words):
            del said.phrases[place]
            return " ".join(words)
    return _MISSING


def _numbers(text: str) -> list[int | float]:
    words = plain_words(text).split()
    found: list[int | float] = []
    at = 0
    while at < len(words):
        number = read_number(words[at:])
        if number is not None:
            value = number.value
            found.append(int(value) if value.denominator == 1 else float(value))
        at += 1 if number is None else number.words
    return found


def _begins_with_number(phrase: str) -> bool:
    return read_number(plain_words(phrase).split()) is not None


def _phrases(text: str) -> list[str]:
    """Return the words behind each preposition, as they were written."""
    found: list[list[str]] = []
    is_open = False
    for token in text.split():
        word = token.strip(_EDGES)
        plain = word.lower()
        if plain in _ENDS:
            is_open = plain in _OPENS
            found += [[]] if is_open else []
        elif is_open and word:
            if plain in _TIMES and found[-1]:
                is_open = False
            else:
                found[-1].append(token.rstrip(_EDGES) if token.endswith(_SENTENCE_ENDS) else token)
        if token.endswith(_SENTENCE_ENDS):
            is_open = False
    joined = (" ".join(words).strip(_EDGES) for words in found)
    return [phrase for phrase in joined if phrase]
