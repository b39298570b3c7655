"""SmolLM2-135M on CTranslate2: writes the answers that no rule knows.

Rule 1: the prompt is bounded: what the client instructs, as much of the latest conversation as
        fits, and always the newest words. A long prompt would be a long wait.
Rule 2: under the default instructions the prompt begins with a few model answers, which such a
        small model needs; their state is computed once and shared by all sessions.
"""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Self

import ctranslate2
from tokenizers import Tokenizer

from stages.embedded.conversation import Conversation, Role
from stages.embedded.ports import Prompt, Writing
from stages.embedded.prepare import TOKENIZER
from stages.embedded.smollm2_gguf import END_OF_TURN, START_OF_TURN

MOST_INSTRUCTION_TOKENS: Final = 384
MOST_USER_TOKENS: Final = 384

_MOST_INSTRUCTION_CHARS: Final = 8 * MOST_INSTRUCTION_TOKENS

_REPETITION_PENALTY: Final = 1.1
_CONTROL: Final = re.compile(r"<\|[^|>]*\|>")
_CANDIDATES: Final = 40
"""Sampling chooses among this many tokens."""
_MODEL_ANSWERS: Final = (
    ("What is the capital of Italy?", "The capital of Italy is Rome."),
    ("How many days are in a year?", "There are 365 days in a year."),
    ("I feel sad today.", "I am sorry to hear that. Do you want to talk about it?"),
    (
        "Why is snow white?",
        "Snow is white because its crystals reflect all colors of light.",
    ),
)


class LanguageModel:
    """The writer; usable from as many threads at once as it has workers."""

    def __init__(
        self, generator: ctranslate2.Generator, tokenizer: Tokenizer, instructions: str
    ) -> None:
        self._generator = generator
        self._tokenizer = tokenizer
        self._shared = tuple(self._tokens(_system(instructions) + _model_answers()))

    @classmethod
    def load(cls, folder: Path, *, instructions: str, workers: int, threads: int) -> Self:
        """Load the converted model; `instructions` are those of sessions that give none."""
        generator = ctranslate2.Generator(
            str(folder),
            device="cpu",
            compute_type="int8",
            inter_threads=workers,
            intra_threads=threads,
        )
        tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
        return cls(generator, tokenizer, instructions)

    def prompt(self, instructions: str, conversation: Conversation, history_tokens: int) -> Prompt:
        """Build the prompt for the answer to the conversation's last entry."""
        parts: list[list[str]] = []
        room = history_tokens
        for entry in reversed(conversation.entries):
            limit = MOST_USER_TOKENS if entry.role is Role.USER else history_tokens
            words = self._words(entry.text)[-limit:] if limit else []
            part = [*self._opening(entry.role), *words, *self._tokens(f"{END_OF_TURN}\n")]
            if parts and len(part) > room:
                break
            room -= len(part) if parts else 0
            parts.append(part)
        said = [token for part in reversed(parts) for token in part]
        own = (*said, *self._opening(Role.ASSISTANT))
        if not instructions:
            return Prompt(self._shared, own)
        system = self._words(instructions[:_MOST_INSTRUCTION_CHARS])[:MOST_INSTRUCTION_TOKENS]
        head = [*self._tokens(f"{START_OF_TURN}system\n"), *system]
        return Prompt((), (*head, *self._tokens(f"{END_OF_TURN}\n"), *own))

    def write(self, prompt: Prompt, writing: Writing, on_text: Callable[[str], bool]) -> None:
        """Give `on_text` each new piece of the answer; stop when it returns True."""
        is_greedy = not writing.temperature
        self._generator.generate_batch(
            [list(prompt.own)],
            static_prompt=list(prompt.shared) or None,
            cache_static_prompt=True,
            include_prompt_in_result=False,
            max_length=writing.max_tokens,
            sampling_topk=1 if is_greedy else _CANDIDATES,
            sampling_temperature=1.0 if is_greedy else writing.temperature,
            repetition_penalty=_REPETITION_PENALTY,
            end_token=END_OF_TURN,
            callback=_Pieces(self._tokenizer, on_text),
        )

    def first_tokens(self, sentences: Iterable[str], limit: int) -> list[str]:
        """Return the sentences up to `limit` tokens; the last may be cut short."""
        kept: list[str] = []
        for sentence in sentences:
            ids = self._tokenizer.encode(sentence, add_special_tokens=False).ids
            kept.append(sentence if len(ids) <= limit else self._tokenizer.decode(ids[:limit]))
            limit -= len(ids)
            if limit <= 0:
                break
        return kept

    def _tokens(self, text: str) -> list[str]:
        tokens: list[str] = self._tokenizer.encode(text, add_special_tokens=False).tokens
        return tokens

    def _words(self, text: str) -> list[str]:
        """Return the tokens of what somebody said: no text can spell a control token."""
        return self._tokens(_CONTROL.sub(" ", text))

    def _opening(self, role: Role) -> list[str]:
        return self._tokens(f"{START_OF_TURN}{role.value}\n")


class _Pieces:
    """Turns the engine's tokens into pieces of text, whole characters only."""

    def __init__(self, tokenizer: Tokenizer, on_text: Callable[[str], bool]) -> None:
        self._tokenizer = tokenizer
        self._on_text = on_text
        self._ids: list[int] = []
        self._shown = ""

    def __call__(self, step: ctranslate2.GenerationStepResult) -> bool:
        self._ids.append(step.token_id)
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
