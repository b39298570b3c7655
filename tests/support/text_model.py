"""A text model for tests: it writes what it is told to, when it is told to."""

import asyncio
import threading
from collections.abc import Callable, Iterable

from stages.embedded.conversation import Conversation
from stages.embedded.ports import Prompt, Writing

WAIT_S = 10


class HandTextModel:
    """Writes `pieces`; before each one it takes a permit, unless it runs freely."""

    def __init__(self, *pieces: str) -> None:
        self.pieces = list(pieces)
        self.prompts: list[tuple[str, Conversation]] = []
        self.writings: list[Writing] = []
        self.fault: Exception | None = None
        self.written: list[str] = []
        """Pieces that were given away, over all answers."""
        self.is_stopped = threading.Event()
        """Somebody wanted no more."""
        self.was_starved = False
        """It waited in vain for a permit: the test did not do what it meant to."""
        self.forgotten: list[str] = []
        self.dies = asyncio.Event()
        self._permits: threading.Semaphore | None = None
        self._waits = 0
        self._has_come = threading.Condition()

    def hold(self) -> None:
        """Wait for permits from now on."""
        self._permits = threading.Semaphore(0)

    def let(self, pieces: int) -> None:
        """Let so many pieces be written."""
        assert self._permits is not None
        self._permits.release(pieces)

    def wait_until_it_waits(self, times: int) -> None:
        """Block until the model has come to so many pieces that it needs a permit for."""
        with self._has_come:
            assert self._has_come.wait_for(lambda: self._waits >= times, WAIT_S)

    def prompt(self, instructions: str, conversation: Conversation, history_tokens: int) -> Prompt:
        """Remember what it was asked."""
        del history_tokens
        self.prompts.append((instructions, conversation))
        return Prompt(("I",), tuple(instructions.split()))

    def write(self, prompt: Prompt, writing: Writing, on_text: Callable[[str], bool]) -> bool:
        """Give the pieces, one permit each and each a token."""
        del prompt
        self.writings.append(writing)
        for number, piece in enumerate([*self.pieces, None], 1):
            if self._permits is not None:
                self._take_permit(self._permits)
            if self.fault is not None:
                raise self.fault
            if piece is None:
                return False
            self.written.append(piece)
            if on_text(piece):
                self.is_stopped.set()
                return False
            if number == writing.max_tokens:
                return True
        raise AssertionError("the pieces end in None")

    def first_tokens(self, sentences: Iterable[str], limit: int) -> list[str]:
        """Take each word for a token."""
        kept: list[str] = []
        for sentence in sentences:
            words = sentence.split()
            kept.append(" ".join(words[:limit]))
            limit -= len(words)
            if limit <= 0:
                break
        return kept

    def forget(self, memory: str) -> None:
        """Remember what was to be forgotten."""
        self.forgotten.append(memory)

    async def died(self) -> str:
        """Return once `dies` is set."""
        await self.dies.wait()
        return "it was told to"

    def _take_permit(self, permits: threading.Semaphore) -> None:
        with self._has_come:
            self._waits += 1
            self._has_come.notify_all()
        if not permits.acquire(timeout=WAIT_S):
            self.was_starved = True
            raise AssertionError("nobody let the model write on")
