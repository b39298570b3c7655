"""The prompt of SmolLM2, and its tokens as text: the same whatever runs the model.

Rule 1: the prompt is bounded: what the client instructs, as much of the latest conversation as
        fits, and always the newest words, with what the system told since the last answer. A long
        prompt would be a long wait.
Rule 2: under the default instructions the prompt begins with a few model answers, which such a
        small model needs; their state can be computed once and shared by all sessions.
"""

import re
from collections.abc import Callable, Iterable
from typing import Final

from tokenizers import Tokenizer

from stages.embedded.conversation import Conversation, Role
from stages.embedded.ports import Prompt
from stages.embedded.smollm2_gguf import END_OF_TURN, START_OF_TURN

MOST_INSTRUCTION_TOKENS: Final = 384
MOST_USER_TOKENS: Final = 384
MOST_TOLD_TOKENS: Final = 384
"""Of the system's messages since the assistant last said something."""

_MOST_INSTRUCTION_CHARS: Final = 8 * MOST_INSTRUCTION_TOKENS

_CONTROL: Final = re.compile(r"<\|[^|>]*\|>")
_MODEL_ANSWERS: Final = (
    ("What is the capital of Italy?", "The capital of Italy is Rome."),
    ("How many days are in a year?", "There are 365 days in a year."),
    ("I feel sad today.", "I am sorry to hear that. Do you want to talk about it?"),
    (
        "Why is snow white?",
        "Snow is white because its crystals reflect all colors of light.",
    ),
)


class Prompts:
    """Builds prompts with one tokenizer; `instructions` are those of sessions that give none."""

    def __init__(self, tokenizer: Tokenizer, instructions: str) -> None:
        self.tokenizer = tokenizer
        self.shared = tuple(self._tokens(_system(instructions) + _model_answers()))
        """What a prompt begins with where the client gives no instructions."""

    def prompt(self, instructions: str, conversation: Conversation, history_tokens: int) -> Prompt:
        """Build the prompt for the answer to the conversation's last entry."""
        own = (*self._said(conversation, history_tokens), *self._opening(Role.ASSISTANT))
        if not instructions:
            return Prompt(self.shared, own)
        system = self._words(instructions[:_MOST_INSTRUCTION_CHARS])[:MOST_INSTRUCTION_TOKENS]
        head = [*self._tokens(f"{START_OF_TURN}system\n"), *system]
        return Prompt((), (*head, *self._tokens(f"{END_OF_TURN}\n"), *own))

    def first_tokens(self, sentences: Iterable[str], limit: int) -> list[str]:
        """Return the sentences up to `limit` tokens; the last may be cut short."""
        kept: list[str] = []
        for sentence in sentences:
            ids = self.tokenizer.encode(sentence, add_special_tokens=False).ids
            kept.append(sentence if len(ids) <= limit else self.tokenizer.decode(ids[:limit]))
            limit -= len(ids)
            if limit <= 0:
                break
        return kept

    def id_of(self, token: str) -> int:
        """Return the number of a token; raises ValueError if the tokenizer has no such token."""
        number = self.tokenizer.token_to_id(token)
        if number is None:
            raise ValueError(f"the tokenizer has no token {token!r}")
        return number

    def _said(self, conversation: Conversation, history_tokens: int) -> list[str]:
        parts: list[list[str]] = []
        room, room_for_told = history_tokens, MOST_TOLD_TOKENS
        is_new, has_words = True, False
        for entry in reversed(conversation.entries):
            is_new = is_new and entry.role is not Role.ASSISTANT
            words = self._words(entry.text)
            if is_new and entry.role is Role.SYSTEM:
                words = words[:room_for_told]
                room_for_told -= len(words)
                parts += [self._turn(entry.role, words)] if words else []
                continue
            limit = MOST_USER_TOKENS if entry.role is Role.USER else history_tokens
            part = self._turn(entry.role, words[-limit:] if limit else [])
            if has_words and len(part) > room:
                break
            room -= len(part) if has_words else 0
            has_words = True
            parts.append(part)
        return [token for part in reversed(parts) for token in part]

    def _turn(self, role: Role, words: list[str]) -> list[str]:
        return [*self._opening(role), *words, *self._tokens(f"{END_OF_TURN}\n")]

    def _tokens(self, text: str) -> list[str]:
        tokens: list[str] = self.tokenizer.encode(text, add_special_tokens=False).tokens
        return tokens

    def _words(self, text: str) -> list[str]:
        """Return the tokens of what somebody said: no text can spell a control token."""
        return self._tokens(_CONTROL.sub(" ", text))

    def _opening(self, role: Role) -> list[str]:
        return self._tokens(f"{START_OF_TURN}{role.value}\n")


class TextPieces:
    """Turns tokens into pieces of text, whole characters only."""

    def __init__(self, tokenizer: Tokenizer, on_text: Callable[[str], bool]) -> None:
        self._tokenizer = tokenizer
        self._on_text = on_text
        self._ids: list[int] = []
        self._shown = ""

    @property
    def n_tokens(self) -> int:
        """How many tokens there have been."""
        return len(self._ids)

    @property
    def last_token(self) -> int | None:
        """The newest token."""
        return self._ids[-1] if self._ids else None

    def add(self, token: int) -> bool:
        """Give what the token adds to the text; return whether nobody wants more."""
        self._ids.append(token)
        text = str(self._tokenizer.decode(self._ids))
        if text.endswith("\ufffd"):
            return self._on_text("")  # in the middle of a character
        piece, self._shown = text[len(self._shown) :], text
        return self._on_text(piece)


def _system(instructions: str) -> str:
    return _turn("system", instructions)


def _model_answers() -> str:
    return "".join(
        _turn(Role.USER.value, question) + _turn(Role.ASSISTANT.value, answer)
        for question, answer in _MODEL_ANSWERS
    )


def _turn(role: str, text: str) -> str:
    return f"{START_OF_TURN}{role}\n{text}{END_OF_TURN}\n"
