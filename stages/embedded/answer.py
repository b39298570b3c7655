"""One answer on its way: sentences come in from a worker thread and are taken one at a time.

Rule 1: `put` and `finish` may be called from any thread; everything else belongs to the loop.
Rule 2: who takes a sentence learns at once whether it is the last.
Rule 3: after `stop` nothing comes out any more, and the writer is told at its next token.
"""

import asyncio
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

from session.unit import SegmentMetrics

MOST_SENTENCES: Final = 8
"""A session without auto-response is given this many units for one answer."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence of an answer."""

    text: str
    is_last: bool
    metrics: SegmentMetrics | None = None
    is_cut: bool = False
    """The limit of the answer's tokens came before its end."""


class Answer:
    """A queue with an end, between a writer and the units that speak."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._sentences: asyncio.Queue[Sentence | None] = asyncio.Queue()
        self._stopped = threading.Event()
        self.writer: asyncio.Future[None] | None = None
        """The thread that writes, for an answer that is still being written."""
        self.speed: float | None = None
        """How fast this answer is spoken; None: as the session is."""

    @classmethod
    def of(cls, texts: Iterable[str], loop: asyncio.AbstractEventLoop, *, is_cut: bool) -> Self:
        """Return an answer that is known already."""
        answer = cls(loop)
        every = list(texts)
        for number, text in enumerate(every, 1):
            is_last = number == len(every)
            answer._sentences.put_nowait(Sentence(text, is_last, is_cut=is_last and is_cut))
        return answer

    @property
    def is_stopped(self) -> bool:
        """Whether nobody wants the rest."""
        return self._stopped.is_set()

    def put(self, sentence: Sentence) -> None:
        """Add the next sentence."""
        self._loop.call_soon_threadsafe(self._sentences.put_nowait, sentence)

    def write_with(self, writer: "asyncio.Future[None]") -> None:
        """Say who writes. If the writer fails, so does whoever waits for a sentence."""
        self.writer = writer
        writer.add_done_callback(lambda _: self._sentences.put_nowait(None))

    async def take(self) -> Sentence | None:
        """Return the next sentence; None once stopped. Raises what the writer failed with."""
        sentence = await self._sentences.get()
        if self.is_stopped:
            return None
        if sentence is None and self.writer is not None:
            self.writer.result()
        return sentence

    def stop(self) -> None:
        """Drop the rest."""
        self._stopped.set()
        self._sentences.put_nowait(None)
