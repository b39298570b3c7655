"""The one inbound queue of a session: what came, in the order it came, each exactly once.

Rule 1: nothing overtakes and nothing is taken out but from the front.
Rule 2: audio that would make the waiting bytes exceed the bound is not taken; a refusal stands in
        its place, so that whoever reads the socket never has to wait.
"""

import asyncio
from dataclasses import dataclass

from session.errors import InputBackpressure
from session.realtime.commands import AudioReceived, Command
from session.stimuli import EventRefused, Stimulus


@dataclass(frozen=True, slots=True)
class Letter:
    """One thing that happened, and when it came in."""

    content: Command | Stimulus
    at_s: float


class Mailbox:
    """A session's inbound queue, bounded in bytes of audio."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._waiting_bytes = 0
        self._letters: asyncio.Queue[Letter] = asyncio.Queue()

    def post(self, content: Command | Stimulus, *, at_s: float) -> None:
        """Put `content` at the end."""
        if isinstance(content, AudioReceived):
            if self._waiting_bytes + content.wire_bytes > self._max_bytes:
                content = EventRefused(
                    InputBackpressure(
                        f"more than {self._max_bytes} bytes of input are waiting; this append "
                        "was not taken, send it again later"
                    ),
                    content.event_id,
                )
            else:
                self._waiting_bytes += content.wire_bytes
        self._letters.put_nowait(Letter(content, at_s))

    async def take(self) -> Letter:
        """Wait for the letter at the front; the caller says `settle` once it is dealt with."""
        return await self._letters.get()

    def settle(self, letter: Letter) -> None:
        """Free what `letter` held."""
        if isinstance(letter.content, AudioReceived):
            self._waiting_bytes -= letter.content.wire_bytes
