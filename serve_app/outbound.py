"""The one outbound queue of a socket: events in order, counted in bytes until they are sent."""

import asyncio
from dataclasses import dataclass
from typing import Final

from session.effects import CloseSocket
from session.events import Event, SpeechDelta

EVENT_BYTES: Final = 1_024
"""What an event is taken to weigh on the wire besides its audio."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One event, or the order to close the socket, on its way out."""

    content: Event | CloseSocket
    at_s: float
    """When the cause of it came in."""
    n_bytes: int


class Outbound:
    """Events that wait for the writer."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._unsent_bytes = 0
        self._queue: asyncio.Queue[Outgoing] = asyncio.Queue()
        self._is_abandoned = False

    @property
    def is_over_bound(self) -> bool:
        """Whether more is unsent than a client that reads would leave."""
        return self._unsent_bytes > self._max_bytes

    def put(self, content: Event | CloseSocket, *, at_s: float) -> None:
        """Queue `content`; nothing once the socket is gone."""
        if self._is_abandoned:
            return
        outgoing = Outgoing(content, at_s, _weight(content))
        self._unsent_bytes += outgoing.n_bytes
        self._queue.put_nowait(outgoing)

    async def take(self) -> Outgoing:
        """Wait for the next; the caller says `sent` when it has left."""
        return await self._queue.get()

    def sent(self, outgoing: Outgoing) -> None:
        """Stop counting what has been sent, or dropped as stale."""
        self._unsent_bytes -= outgoing.n_bytes

    def abandon(self) -> None:
        """The socket is gone: drop what waits and whatever may still come."""
        self._is_abandoned = True
        while not self._queue.empty():
            self.sent(self._queue.get_nowait())


def _weight(content: Event | CloseSocket) -> int:
    match content:
        case SpeechDelta():
            # base64 of the audio; other formats than 24 kHz PCM16 are of the same order.
            return EVENT_BYTES + len(content.pcm) * 4 // 3
        case _:
            return EVENT_BYTES
