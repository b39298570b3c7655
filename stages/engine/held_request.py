"""One session of the engine: what its memory holds, and the request that has it there.

Rule 1: the record is what was fed and sampled, less the last token of each segment. It changes
        when a segment has ended well, and at no other time.
Rule 2: a segment that ended in any other way has cost the request, for vLLM can not take a
        segment back. The record is then fed in front of the next one, rows included.
Rule 3: a request is fed only when the backend holds nothing any more of the one before it, so a
        session never takes more memory than was reserved for it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stages.engine.backend import Output, Stream
from stages.engine.values import Ids, Piece, Pieces, Sampling, StopReason, Tokens
from stages.engine.watchdog import Watch, Watchdog

Listener = Callable[[Tokens], None]
"""Is told what a segment has sampled so far, in the event loop; it must not raise."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """What one segment brought."""

    outputs: tuple[Output, ...]
    token_ids: Tokens
    stop: StopReason


class HeldRequest:
    """One session. At most one segment of it runs, which is for the caller to see to."""

    def __init__(self, key: str, new_stream: Callable[[], Stream], watchdog: Watchdog) -> None:
        self.key = key
        self.calls: set[asyncio.Task[Any]] = set()
        """What runs or waits for this session."""
        self.closing: asyncio.Task[None] | None = None
        self._new_stream = new_stream
        self._watchdog = watchdog
        self._pieces: list[Piece] = []
        self._tokens = 0
        self._before: tuple[list[Piece], int] | None = None
        """The record before the segment that ended last, until the next one begins."""
        self._stream: Stream | None = None
        self._drops: set[asyncio.Task[None]] = set()

    @property
    def pieces(self) -> Pieces:
        """What the memory holds."""
        return tuple(self._pieces)

    @property
    def tokens(self) -> int:
        """How many positions that takes."""
        return self._tokens

    @property
    def is_to_be_rebuilt(self) -> bool:
        """Whether the memory exists in the record alone."""
        return self._stream is None and bool(self._tokens)

    async def run(
        self,
        pieces: Pieces,
        sampling: Sampling,
        watch: Watch,
        listener: Listener | None = None,
    ) -> Sampled:
        """Feed `pieces` and return all that is sampled; raises what the stream raises.

        The listener is told of all that was sampled so far, each time that more will follow.
        """
        self._before = None
        fed = (*self._pieces, *pieces) if self._stream is None else pieces
        if self._stream is None:
            self._stream = self._new_stream()
        stream = self._stream
        try:
            await stream.feed(fed, sampling)
            sampled = await _all_of(stream, watch, listener)
        except BaseException:
            self.lose()
            raise
        self._commit(pieces, sampled.token_ids)
        return sampled

    def _commit(self, pieces: Pieces, sampled: Tokens) -> None:
        self._before = (list(self._pieces), self._tokens)
        for piece in (*pieces, Ids(sampled[:-1])):
            self._add(piece)

    def _add(self, piece: Piece) -> None:
        last = self._pieces[-1] if self._pieces else None
        if isinstance(piece, Ids) and isinstance(last, Ids):
            self._pieces[-1] = Ids(last.ids + piece.ids)
        elif len(piece):
            self._pieces.append(piece)
        self._tokens += len(piece)

    def revert(self) -> None:
        """Take back the segment that ended last, unless another has begun since."""
        if self._before is not None:
            self._pieces, self._tokens = self._before
            self._before = None
            self.lose()

    def become(self, pieces: Pieces) -> None:
        """Hold exactly `pieces` from now on."""
        self._before = None
        self._pieces, self._tokens = [], 0
        for piece in pieces:
            self._add(piece)
        self.lose()

    def lose(self) -> None:
        """Begin to drop the request; the record stays."""
        stream, self._stream = self._stream, None
        if stream is not None:
            drop = asyncio.create_task(self._drop(stream))  # noqa: TID251 - dropped() awaits it
            self._drops.add(drop)
            drop.add_done_callback(self._drops.discard)

    async def _drop(self, stream: Stream) -> None:
        with self._watchdog.watching(f"an abort of session {self.key}"):
            await stream.abort()

    async def dropped(self) -> None:
        """Wait until the backend holds nothing of the requests that were lost, or is dead."""
        while self._drops and not self._watchdog.death.done():
            over: set[asyncio.Future[Any]] = {*self._drops, self._watchdog.death}
            await asyncio.wait(over, return_when=asyncio.FIRST_COMPLETED)
        for drop in self._drops:
            drop.cancel()  # the dead do not answer


async def _all_of(stream: Stream, watch: Watch, listener: Listener | None) -> Sampled:
    outputs: list[Output] = []
    token_ids: Tokens = ()
    while True:
        output = await stream.next()
        watch.progressed()
        outputs.append(output)
        token_ids += output.token_ids
        if output.stop is not None:
            return Sampled(tuple(outputs), token_ids, output.stop)
        if listener is not None:
            listener(token_ids)
