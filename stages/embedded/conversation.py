"""What was said so far, as an immutable value: the memory of one session.

Rule 1: an answer is remembered only as far as the user heard it.
Rule 2: only the latest entries are kept; what of them fits its prompt is the model's business.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from session.context import ContextMessage

KEPT_ENTRIES: Final = 32
MOST_TOLD_CHARS: Final = 4000
"""What is longer of a message is cut."""


class Role(enum.Enum):
    """Who said something; the values are the chat template's names."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


@dataclass(frozen=True, slots=True)
class Entry:
    """What one side said in one go."""

    role: Role
    text: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """The latest entries, oldest first."""

    entries: tuple[Entry, ...] = ()
    is_answer_open: bool = False
    """The last entry is the newest turn's answer, which may still grow or be cut short."""

    @property
    def last_answer(self) -> str:
        """Return the assistant's latest words, as far as they were heard."""
        return next((e.text for e in reversed(self.entries) if e.role is Role.ASSISTANT), "")

    @property
    def unanswered(self) -> str:
        """Return the user's latest words if nothing has been said to them."""
        said = (entry for entry in reversed(self.entries) if entry.role is not Role.SYSTEM)
        last = next(said, None)
        return last.text if last is not None and last.role is Role.USER else ""

    def told(self, messages: Iterable[ContextMessage]) -> "Conversation":
        """Add messages that nobody has to answer; what was said so far is said."""
        entries = (*self.entries, *(_entry(each) for each in messages))
        return Conversation(entries[-KEPT_ENTRIES:])

    def closed(self) -> "Conversation":
        """Let the newest turn's answer stay as it is."""
        return replace(self, is_answer_open=False)

    def user_said(self, text: str) -> "Conversation":
        """Begin a turn with the user's words."""
        entries = (*self.entries, Entry(Role.USER, text))
        return Conversation(entries[-KEPT_ENTRIES:])

    def assistant_said(self, text: str) -> "Conversation":
        """Let the newest turn's answer begin with or go on with `text`."""
        if self.is_answer_open:
            last = replace(self.entries[-1], text=self.entries[-1].text + text)
            return replace(self, entries=(*self.entries[:-1], last))
        entries = (*self.entries, Entry(Role.ASSISTANT, text))
        return Conversation(entries[-KEPT_ENTRIES:], is_answer_open=True)

    def heard_only(self, heard: str) -> "Conversation":
        """Cut the newest turn's answer down to what the user heard of it."""
        if not self.is_answer_open:
            return self
        kept = (Entry(Role.ASSISTANT, heard.strip()),) if heard.strip() else ()
        return Conversation((*self.entries[:-1], *kept))


def _entry(message: ContextMessage) -> Entry:
    return Entry(Role(message.role), message.text[:MOST_TOLD_CHARS])
