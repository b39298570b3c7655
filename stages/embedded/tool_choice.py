"""Which of the offered functions an utterance asks for: by words, not by understanding.

Rule 1: a function is meant when the user asks, and at least half of the words of its name are said,
        or two words of its description. Words that fit any function, such as `get`, do not count.
Rule 2: the function that is meant most, and the first of equals, is called, if its arguments can be
        filled in; else the next. If there is none, nothing is called.
Rule 3: where a call is required, any function may be called, or only the one that is named. Its
        arguments must be filled in all the same.
"""

import re
from dataclasses import dataclass
from typing import Final

from session.config import RuntimeConfig
from session.tools import Tool, ToolUse
from stages.embedded.plain_words import plain_words, stem, without_politeness
from stages.embedded.tool_arguments import fill_arguments
from stages.embedded.tool_outputs import name_in_words

LEAST_OF_NAME: Final = 0.5
LEAST_OF_DESCRIPTION: Final = 2

# fmt: off
_ANY_FUNCTION: Final = frozenset((
    "a", "an", "and", "any", "are", "as", "at", "be", "by", "call", "can", "check", "create",
    "current", "currently", "do", "fetch", "find", "for", "from", "function", "get", "give",
    "given", "has", "have", "in", "information", "into", "is", "it", "its", "list", "look",
    "lookup", "make", "me", "my", "of", "on", "or", "out", "perform", "query", "read",
    "retrieve", "return", "returns", "run", "search", "set", "show", "tell", "that", "the",
    "their", "them", "this", "to", "tool", "up", "use", "used", "user", "users", "using",
    "value", "when", "where", "which", "with", "you", "your",
))
# fmt: on
_TELLS: Final = re.compile(
    r"(?:i|you|he|she|we|they|it|this|that|there|the|a|an|my|your|his|her|our|their|thank|thanks)\b"
)
_WANTS: Final = re.compile(r"i (?:want|need|would like|wish|would love)\b")


@dataclass(frozen=True, slots=True)
class Chosen:
    """A function to call."""

    name: str
    arguments: str
    """A JSON object, as JSON text."""


@dataclass(frozen=True, slots=True)
class _Match:
    tool: Tool
    topic: frozenset[str]
    of_name: tuple[float, int]
    """Share and number of the words of its name that were said."""
    of_description: int
    """Further words of its description that were said."""

    @property
    def is_meant(self) -> bool:
        return self.of_name[0] >= LEAST_OF_NAME or self.of_description >= LEAST_OF_DESCRIPTION


def choose_call(text: str, runtime: RuntimeConfig) -> Chosen | None:
    """Return the call that the words ask for or the settings require, if it can be made."""
    choice = runtime.tool_choice
    if choice.use is ToolUse.NONE:
        return None
    said = frozenset(stem(word) for word in plain_words(text).split())
    matches = [_match(tool, said) for tool in runtime.tools if choice.name in ("", tool.name)]
    if choice.use is not ToolUse.REQUIRED:
        matches = [match for match in matches if match.is_meant] if _asks(text) else []
    matches.sort(key=lambda match: (match.of_name, match.of_description), reverse=True)
    for match in matches:
        arguments = fill_arguments(match.tool.parameters, text, match.topic)
        if arguments is not None:
            return Chosen(match.tool.name, arguments)
    return None


def _match(tool: Tool, said: frozenset[str]) -> _Match:
    name = _content_words(tool.name)
    description = _content_words(tool.description) - name
    hits = len(name & said)
    of_name = (hits / len(name) if name else 0.0, hits)
    return _Match(tool, name | description, of_name, len(description & said))


def _content_words(text: str) -> frozenset[str]:
    words = name_in_words(text).split()
    return frozenset(stem(word) for word in words if word not in _ANY_FUNCTION)


def _asks(text: str) -> bool:
    """Whether the words ask for something rather than tell it."""
    if "?" in text:
        return True
    core = without_politeness(plain_words(text))
    return bool(_WANTS.match(core)) or not _TELLS.match(core)
