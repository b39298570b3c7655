"""SmolLM2-135M on CTranslate2: writes the answers that no rule knows."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Self

import ctranslate2
from tokenizers import Tokenizer

from stages.contract import lives_with_its_process
from stages.embedded.conversation import Conversation
from stages.embedded.ports import Prompt, Writing
from stages.embedded.prepare import TOKENIZER
from stages.embedded.prompts import Prompts, TextPieces
from stages.embedded.smollm2_gguf import END_OF_TURN

_REPETITION_PENALTY: Final = 1.1
_CANDIDATES: Final = 40
"""Sampling chooses among this many tokens."""


class LanguageModel:
    """The writer; usable from as many threads at once as it has workers."""

    def __init__(
        self, generator: ctranslate2.Generator, tokenizer: Tokenizer, instructions: str
    ) -> None:
        self._generator = generator
        self._prompts = Prompts(tokenizer, instructions)

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
        return self._prompts.prompt(instructions, conversation, history_tokens)

    def write(self, prompt: Prompt, writing: Writing, on_text: Callable[[str], bool]) -> bool:
        """Give `on_text` each new piece of the answer; stop when it returns True.

        Returns whether `max_tokens` came before the end of the answer.
        """
        is_greedy = not writing.temperature
        pieces = TextPieces(self._prompts.tokenizer, on_text)
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
            callback=lambda step: pieces.add(step.token_id),
        )
        is_ended = pieces.last_token == self._prompts.id_of(END_OF_TURN)
        return pieces.n_tokens >= writing.max_tokens and not is_ended

    def first_tokens(self, sentences: Iterable[str], limit: int) -> list[str]:
        """Return the sentences up to `limit` tokens; the last may be cut short."""
        return self._prompts.first_tokens(sentences, limit)

    def forget(self, memory: str) -> None:
        """Do nothing: every answer's prompt has the whole conversation in it."""

    async def died(self) -> str:
        """Never return: all of it is in this process."""
        return await lives_with_its_process()
