"""SmolLM2-135M on vLLM: one resumable request for each conversation, whose state is kept.

Rule 1: a conversation's memory is only ever fed what comes next. Where the prompt does not go on
        from what the memory holds, because the user heard less of an answer than was written, the
        memory is made anew from the prompt.
Rule 2: one token a segment. A token costs the same as within a longer one, each is given away at
        once, and whoever wants no more is rid of it within one token.
Rule 3: of one conversation one answer is written at a time; the next waits for it to end.
Rule 4: memories are kept for a bounded number of conversations; the one that was used longest ago
        makes room. What that costs is time alone: the prompt has all that is needed.
Rule 5: the engine lives on a loop of its own, in a thread of its own: it blocks while it starts,
        and the writers' threads wait for it.
"""

import asyncio
import itertools
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from tokenizers import Tokenizer

from session.errors import StageFailed
from session.ids import RequestId
from stages.embedded.conversation import Conversation
from stages.embedded.ports import Prompt, Writing
from stages.embedded.prepare import TOKENIZER
from stages.embedded.prompts import Prompts, TextPieces
from stages.embedded.smollm2_gguf import END_OF_TURN, START_OF_TURN
from stages.engine.engine import ResumableEngine
from stages.engine.settings import SPARE_SLOTS, EngineSettings
from stages.engine.values import Ids, Sampling, Segment, StopReason, Tokens

T = TypeVar("T")

SESSION_TOKENS: Final = 4096
"""Positions of one memory; the model itself was made for 8192."""
_CANDIDATES: Final = 40
"""Sampling chooses among this many tokens."""
_BATCHED_TOKENS: Final = 2048
_KV_BYTES_PER_TOKEN: Final = 30 * 2 * 3 * 64 * 4
"""Layers, keys and values, heads, width, float32."""


class VllmLanguageModel:
    """The writer; usable from as many threads at once as it has memories."""

    def __init__(self, engine: ResumableEngine, tokenizer: Tokenizer, instructions: str) -> None:
        """Use an engine that `start` will start."""
        self._engine = engine
        self._prompts = Prompts(tokenizer, instructions)
        self._start, self._end = self._ids((START_OF_TURN, END_OF_TURN))
        self._writing: OrderedDict[str, asyncio.Lock] = OrderedDict()
        """A lock for each memory, the one that was used longest ago first."""
        self._numbers = itertools.count()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="vllm", daemon=True)

    @classmethod
    def load(cls, folder: Path, *, instructions: str, memories: int) -> Self:
        """Start vLLM on the converted model; `instructions` are those of sessions without any.

        `memories` conversations are kept, and so many answers can be written at once. Takes tens
        of seconds, and raises EngineFailed.
        """
        from stages.engine.vllm_backend import VllmBackend  # noqa: PLC0415 - needs torch

        settings = engine_settings(folder, memories)
        backend = VllmBackend(settings, time.monotonic)
        engine = ResumableEngine(settings, backend, time.monotonic)
        model = cls(engine, Tokenizer.from_file(str(folder / TOKENIZER)), instructions)
        model.start()
        return model

    def start(self) -> None:
        """Start the engine."""
        self._thread.start()
        try:
            self._call(self._engine.start())
        except BaseException:
            self._end_loop()
            raise

    def stop(self) -> None:
        """End the engine and its processes."""
        self._call(self._engine.stop())
        self._end_loop()

    def prompt(self, instructions: str, conversation: Conversation, history_tokens: int) -> Prompt:
        """Build the prompt for the answer to the conversation's last entry."""
        return self._prompts.prompt(instructions, conversation, history_tokens)

    def write(self, prompt: Prompt, writing: Writing, on_text: Callable[[str], bool]) -> bool:
        """Give `on_text` each new piece of the answer; stop when it returns True.

        Returns whether `max_tokens` came before the end of the answer. Raises StageError.
        """
        pieces = TextPieces(self._prompts.tokenizer, on_text)
        return self._call(self._write(prompt, writing, pieces))

    def first_tokens(self, sentences: Iterable[str], limit: int) -> list[str]:
        """Return the sentences up to `limit` tokens; the last may be cut short."""
        return self._prompts.first_tokens(sentences, limit)

    def forget(self, memory: str) -> None:
        """Drop what is kept under that name, once nothing writes under it."""
        self._call(self._forget(memory))

    def held(self, memory: str) -> Tokens:
        """Return the tokens of a memory; none if there is no such memory."""
        return self._call(self._held_now(memory))

    async def died(self) -> str:
        """Return why the engine is dead, once it is."""
        return await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(self._engine.died(), self._loop)
        )

    async def _write(self, prompt: Prompt, writing: Writing, pieces: TextPieces) -> bool:
        head, own = self._ids(prompt.shared), self._ids(prompt.own)
        room = SESSION_TOKENS - len(head) - len(own)
        if room < 1:
            raise StageFailed(f"the prompt leaves no room in {SESSION_TOKENS} tokens")
        most_tokens = min(writing.max_tokens, room)
        async with self._memory(writing.memory):
            fed = await self._continue(writing.memory, (*head, *own), most_tokens)
            for _ in range(most_tokens):
                done = await self._engine.append(writing.memory, self._segment(writing, fed))
                if pieces.add(done.token_ids[-1]) or done.stop is StopReason.STOP_TOKEN:
                    return False
                fed = done.token_ids[-1:]
        return most_tokens == writing.max_tokens

    @asynccontextmanager
    async def _memory(self, memory: str) -> AsyncIterator[None]:
        """Have the memory for oneself; open it where there is none."""
        while True:
            if memory not in self._writing:
                await self._make_room()
            if memory not in self._writing:
                await self._engine.open(memory)
                self._writing[memory] = asyncio.Lock()
            lock = self._writing[memory]
            self._writing.move_to_end(memory)
            async with lock:
                if self._writing.get(memory) is lock:  # it may have been dropped meanwhile
                    yield
                    return

    async def _make_room(self) -> None:
        """Drop the memory that was used longest ago, one that nobody uses now if there is one."""
        while len(self._writing) >= self._engine.capacity().max_sessions:
            idle = (name for name, lock in self._writing.items() if not lock.locked())
            await self._forget(next(idle, next(iter(self._writing))))

    async def _continue(self, memory: str, prompt: Tokens, most_tokens: int) -> Tokens:
        """Return what must be fed so that the memory ends with the prompt; rule 1."""
        held = self._held(memory)
        fed = what_follows(held, prompt, self._start)
        if fed is not None and len(held) + len(fed) + most_tokens <= SESSION_TOKENS:
            return fed
        if held:
            await self._engine.replace(memory, ())
        return prompt

    def _segment(self, writing: Writing, fed: Tokens) -> Segment:
        request_id = RequestId(f"{writing.memory}.{next(self._numbers)}")
        sampling = Sampling(
            max_tokens=1,
            stop_token_ids=(self._end,),
            temperature=writing.temperature or 0.0,
            top_k=_CANDIDATES if writing.temperature else 0,
        )
        return Segment(request_id, (Ids(fed),), sampling, time.monotonic())

    async def _forget(self, memory: str) -> None:
        lock = self._writing.get(memory)
        if lock is None:
            return
        async with lock:
            if self._writing.get(memory) is lock:
                await self._engine.close(memory)
                del self._writing[memory]

    async def _held_now(self, memory: str) -> Tokens:
        return self._held(memory) if memory in self._writing else ()

    def _held(self, memory: str) -> Tokens:
        pieces = self._engine.held(memory)
        return tuple(token for piece in pieces if isinstance(piece, Ids) for token in piece.ids)

    def _ids(self, tokens: Sequence[str]) -> Tokens:
        return tuple(self._prompts.id_of(token) for token in tokens)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def what_follows(held: Tokens, prompt: Tokens, start_of_turn: int) -> Tokens | None:
    """Return what the prompt adds to what is held; None if it does not go on from there.

    The prompt's oldest turns after its head may be missing: what is held may remember more.
    """
    if prompt[: len(held)] == held:
        return prompt[len(held) :] or None
    starts = [at for at, token in enumerate(prompt) if token == start_of_turn]
    heads = [at for at in starts if at and prompt[:at] == held[:at]]
    for head in reversed(heads):
        for at in range(head, len(held)):
            if held[at] == start_of_turn and prompt[head : head + len(held) - at] == held[at:]:
                return prompt[head + len(held) - at :] or None
    return None


def engine_settings(folder: Path, memories: int) -> EngineSettings:
    """Return what the engine is built from, for one CPU."""
    return EngineSettings(
        model=folder,
        tokenizer=folder,
        dtype="float32",
        max_model_len=SESSION_TOKENS,
        session_tokens=SESSION_TOKENS,
        max_sessions=memories,
        max_in_flight=memories,
        max_num_seqs=memories + SPARE_SLOTS,
        max_num_batched_tokens=_BATCHED_TOKENS,
        # One block more for vLLM itself.
        kv_cache_memory_bytes=_KV_BYTES_PER_TOKEN * SESSION_TOKENS * (memories + 1),
        enforce_eager=True,
        more_engine_args={"skip_tokenizer_init": True},
    )
