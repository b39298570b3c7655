"""A person on the phone: a microphone that never stops, a loudspeaker, and words when asked."""

import asyncio
import time
from collections.abc import Mapping
from types import TracebackType

from clients import events as ev
from clients.duplex import DuplexClient
from clients.embedded import create_duplex_session_config
from clients.playback import PlaybackClock
from clients.responses import ResponseHandle

RATE_HZ = 16_000
BLOCK_MS = 200
BLOCK_BYTES = RATE_HZ * BLOCK_MS // 1000 * 2


class Caller:
    """One live conversation. Audio goes out in real time; what is heard is acknowledged."""

    def __init__(self, url: str, settings: Mapping[str, object] | None = None) -> None:
        self.events: list[ev.ServerEvent] = []
        self.sent_samples = 0
        self.speaker = PlaybackClock(ack_every_s=0.2)
        self.client = DuplexClient(
            url, settings or create_duplex_session_config(), observers=(self._observe,)
        )
        self._words = bytearray()
        self._said = asyncio.Event()
        self._block = asyncio.Condition()
        """Notified after each block of the microphone: conditions on the sound are checked then."""
        self._microphone: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Caller":
        await self.client.open()
        self._microphone = asyncio.create_task(self._run_microphone())  # ended below
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._microphone is not None
        self._microphone.cancel()
        await asyncio.wait({self._microphone})
        await self.client.close()

    async def say(self, pcm: bytes) -> int:
        """Say 16 kHz PCM; return the sample of the session's input at which it begins."""
        onset = self.sent_samples
        self._said.clear()
        self._words += pcm
        await self._said.wait()
        return onset

    async def answer(self) -> ResponseHandle:
        """Wait for the next answer, complete."""
        return await (await self.client.next_response()).wait_done()

    async def heard(self, handle: ResponseHandle, at_least_ms: int) -> None:
        """Wait until so much of an answer has been played."""
        async with self._block:
            await self._block.wait_for(
                lambda: self.speaker.played_ms(handle.response_id, time.monotonic()) >= at_least_ms
            )

    async def played(self) -> None:
        """Wait until everything that came in has been played and acknowledged."""
        async with self._block:
            await self._block.wait_for(lambda: self.speaker.is_idle(time.monotonic()))
            # The last acknowledgement goes out with the next block.
            await self._block.wait()

    def user_lines(self) -> list[str]:
        """What the model understood."""
        return [e.transcript for e in self.events if isinstance(e, ev.InputTranscribed)]

    def errors(self) -> list[ev.ErrorEvent]:
        """Error events so far."""
        return [e for e in self.events if isinstance(e, ev.ErrorEvent)]

    def _observe(self, event: ev.ServerEvent) -> None:
        self.events.append(event)
        self.speaker.observe(event)

    async def _run_microphone(self) -> None:
        start_s = time.monotonic()
        blocks = 0
        while True:
            blocks += 1
            await asyncio.sleep(max(0.0, start_s + blocks * BLOCK_MS / 1000 - time.monotonic()))
            block = bytes(self._words[:BLOCK_BYTES])
            del self._words[:BLOCK_BYTES]
            await self.client.append_audio(block.ljust(BLOCK_BYTES, b"\0"))
            self.sent_samples += BLOCK_BYTES // 2
            if block and not self._words:
                self._said.set()
            for ack in self.speaker.due_acks(time.monotonic()):
                await self.client.ack_playback(ack.response_id, ack.played_ms)
            async with self._block:
                self._block.notify_all()
