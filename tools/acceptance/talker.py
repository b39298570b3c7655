"""One conversation as the page has it: a microphone in real time, a loudspeaker, acknowledgements.

Rule 1: a block of 200 ms goes out every 200 ms, words or silence, until the microphone is off.
Rule 2: the conversation is read to the end of the socket, past the session's terminal event.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Final

from clients import commands
from clients.conversation_log import ConversationLog
from clients.duplex import DuplexClient
from clients.events import ServerEvent
from clients.playback import PlaybackClock
from tools.acceptance.client_log import ClientLog
from tools.acceptance.inputs import RATE_HZ

BLOCK_MS: Final = 200
BLOCK_BYTES: Final = RATE_HZ * BLOCK_MS // 1000 * 2
REPLY_TIMEOUT_S: Final = 20.0
CLOSE_TIMEOUT_S: Final = 20.0


class Talker:
    """Speaks recordings and hears the answers."""

    def __init__(
        self, url: str, settings: Mapping[str, object], log: ClientLog, *, ack_every_s: float
    ) -> None:
        self._log = log
        self._settings = settings
        self._heard = ConversationLog()
        self._speaker = PlaybackClock(ack_every_s=ack_every_s)
        self._client = DuplexClient(url, settings, observers=(self._observe,))
        self._start_s = 0.0
        self._blocks = 0
        self.is_microphone_on = True

    async def open(self) -> None:
        """Open the session."""
        self._log.sent(commands.update_session(self._settings))
        await self._client.open()
        self._start_s = time.monotonic()

    async def say(self, pcm: bytes) -> None:
        """Speak a recording in real time."""
        for at in range(0, len(pcm), BLOCK_BYTES):
            await self._block(pcm[at : at + BLOCK_BYTES].ljust(BLOCK_BYTES, b"\0"))

    async def settle(self, quiet_s: float) -> str:
        """Wait until every response is done, played and acknowledged; say how that ended."""
        while True:
            await self._block(bytes(BLOCK_BYTES))
            now = time.monotonic()
            if not self._speaker.is_idle(now):
                self._heard.touch(now)
            verdict = self._heard.verdict(now, quiet_s=quiet_s, reply_timeout_s=REPLY_TIMEOUT_S)
            if verdict is not None:
                return verdict

    async def wait(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(round(seconds * 1000 / BLOCK_MS)):
            await self._block(bytes(BLOCK_BYTES))

    async def send(self, command: commands.Command) -> None:
        """Send any event."""
        self._log.sent(command)
        await self._client.send(command)

    async def close(self) -> None:
        """Close the session and read until the server closes the socket."""
        await self.send(commands.close_session("client_close"))
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            async for _ in self._client:
                pass
        self._log.note("socket.closed")
        await self._client.close()

    def _observe(self, event: ServerEvent) -> None:
        self._log.received(event)
        self._heard.observe(event)
        self._speaker.observe(event)

    async def _block(self, pcm: bytes) -> None:
        self._blocks += 1
        due_s = self._start_s + self._blocks * BLOCK_MS / 1000
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        if self.is_microphone_on:
            self._log.sent({"type": "input_audio_buffer.append"}, pcm)
            await self._client.append_audio(pcm)
        for ack in self._speaker.due_acks(time.monotonic()):
            await self.send(commands.ack_playback(ack.response_id, ack.played_ms))
