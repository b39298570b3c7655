"""The way out of a session for tasks that wait: a writer asks for the next frame and gets it."""

import asyncio
from collections.abc import Callable

from serve_app.clock import Clock
from session.effects import CloseSocket, Output
from session.events import SpeechDelta
from session.fence import Fence
from session.ids import AttachmentId
from session.outbox import Frame, Outbox


class Outbound:
    """A session's outbox, with somebody waiting at it."""

    def __init__(
        self,
        outbox: Outbox,
        *,
        clock: Clock,
        fence: Callable[[], Fence],
        sent: Callable[[SpeechDelta], None] = lambda _: None,
    ) -> None:
        self.outbox = outbox
        self.sent = sent
        """To be told of each piece of speech that has been given to a socket."""
        self._clock = clock
        self._fence = fence
        self._changed = asyncio.Event()
        self._moved = asyncio.Event()
        """Set when a writer has sent something or is gone."""
        self._is_finished = False

    def perform(self, effect: Output, *, at_s: float) -> None:
        """Apply an effect whose cause came in at `at_s`."""
        self.outbox.perform(effect, fence=self._fence(), at_s=at_s, now=self._clock.now())
        self._changed.set()

    async def next(self, attachment: AttachmentId) -> Frame | CloseSocket | None:
        """Wait for what is to be sent over `attachment`; None once nothing will come any more."""
        while True:
            item = self.outbox.next(attachment, fence=self._fence(), now=self._clock.now())
            self._moved.set()
            if item is not None:
                return item
            due_at_s = self.outbox.due_at_s
            if self._is_finished and due_at_s is None:
                return None
            self._changed.clear()
            await self._wait(due_at_s)

    async def done(self, attachment: AttachmentId) -> None:
        """Wait until nothing more will come for `attachment`; what it has may still be unsent."""
        while not (self._is_finished or self.outbox.has_left(attachment)):
            self._changed.clear()
            await self._changed.wait()

    async def caught_up(self, within_s: float) -> bool:
        """Wait until no more waits than a client that reads would leave; False if it stays so.

        Whoever puts in more should wait here: a client that is sent much at once and reads it is
        not slow.
        """
        until_s = self._clock.now() + within_s
        timer = self._clock.call_at(until_s, self._moved.set)
        try:
            while self.outbox.is_over_bound and self.outbox.attached is not None:
                if self._clock.now() >= until_s:
                    return False
                self._moved.clear()
                await self._moved.wait()
        finally:
            timer.cancel()
        return True

    async def _wait(self, until_s: float | None) -> None:
        """Wait for something new, or until what is held back may go."""
        if until_s is None:
            await self._changed.wait()
            return
        timer = self._clock.call_at(until_s, self._changed.set)
        try:
            await self._changed.wait()
        finally:
            timer.cancel()

    def leave(self, attachment: AttachmentId) -> None:
        """The socket of `attachment` is gone."""
        self.outbox.leave(attachment)
        self._moved.set()

    def finish(self) -> None:
        """Nothing more will be put in; whoever waits gets the rest, then None."""
        self._is_finished = True
        self._changed.set()
