"""The one inbound queue of a session: what came, in the order it came, each exactly once.

Rule 1: nothing overtakes and nothing is taken out but from the front.
Rule 2: what would make the waiting bytes exceed the bound is not taken; a refusal stands in its
        place, so that whoever reads the socket never has to wait. Refusals weigh something too:
        a client that goes on past `FLOOD_MARGIN_BYTES` is flooding.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from session.errors import InputBackpressure
from session.ids import AttachmentId
from session.realtime.commands import Command
from session.stimuli import EventRefused, Stimulus

FRAME_BYTES: Final = 512
"""What any client frame weighs besides its text."""
FLOOD_MARGIN_BYTES: Final = 1_048_576


@dataclass(frozen=True, slots=True)
class Letter:
    """One thing that happened, and when it came in."""

    content: Command | Stimulus
    at_s: float
    attachment: AttachmentId | None = None
    """The socket that it came over; None for what the server itself says."""
    n_bytes: int = 0
    """What it weighs while it waits; nothing for what the server itself says."""


class Mailbox:
    """A session's inbound queue, bounded in bytes of client frames."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._waiting_bytes = 0
        self._letters: asyncio.Queue[Letter] = asyncio.Queue()

    @property
    def is_flooded(self) -> bool:
        """Whether the client goes on sending although it is refused."""
        return self._waiting_bytes > self._max_bytes + FLOOD_MARGIN_BYTES

    def post(
        self,
        content: Command | Stimulus,
        *,
        at_s: float,
        attachment: AttachmentId | None = None,
        frame_bytes: int = 0,
    ) -> None:
        """Put `content` at the end; `frame_bytes` is the size of the client frame it came in."""
        weight = frame_bytes and frame_bytes + FRAME_BYTES
        if weight and isinstance(content, EventRefused):
            weight = FRAME_BYTES  # its text is not kept
        elif weight and self._waiting_bytes + weight > self._max_bytes:
            weight = FRAME_BYTES
            content = EventRefused(
                InputBackpressure(
                    f"more than {self._max_bytes} bytes of input are waiting; this event was not "
                    "taken, send it again later"
                ),
                getattr(content, "event_id", None),
            )
        self._waiting_bytes += weight
        self._letters.put_nowait(Letter(content, at_s, attachment, weight))

    async def take(self) -> Letter:
        """Wait for the letter at the front; the caller says `settle` once it is dealt with."""
        return await self._letters.get()

    def settle(self, letter: Letter) -> None:
        """Free what `letter` held."""
        self._waiting_bytes -= letter.n_bytes
