"""`client.live.connect` of `openai`, unmodified: a conversation on the turnless wire."""

import asyncio
import base64
import time
from typing import Any

import pytest
from openai import AsyncOpenAI
from openai.resources.live.live import AsyncLiveConnection

from tests.realclients.sentences import RATE_HZ, said
from tests.support.live_log import LiveLog
from tests.support.speech import normalise, recognise

pytestmark = pytest.mark.clients

BLOCK_MS = 40
BLOCK_BYTES = RATE_HZ * BLOCK_MS // 1000 * 2
WAIT_S = 120.0
"""Only a test that has gone wrong ever waits so long."""


class LiveLine:
    """A live session with a microphone in real time."""

    def __init__(self, connection: AsyncLiveConnection) -> None:
        self.connection = connection
        self.log = LiveLog()
        self.words = bytearray()

    async def until(self, kind: str) -> Any:
        """Read on to the next event of a type; return what the package makes of it."""
        while True:
            async with asyncio.timeout(WAIT_S):
                frame = (await self.connection.recv_bytes()).decode()
            self.log.hear(frame)
            event = self.connection.parse_event(frame)
            assert event.type in (kind, *PASSED), event
            if event.type == kind:
                return event

    async def run_microphone(self) -> None:
        """Send in real time, silence when there is nothing to say."""
        start_s = time.monotonic()
        blocks = 0
        while True:
            blocks += 1
            due_s = start_s + blocks * BLOCK_MS / 1000
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            block = bytes(self.words[:BLOCK_BYTES]).ljust(BLOCK_BYTES, b"\0")
            del self.words[:BLOCK_BYTES]
            await self.connection.session.input_audio.append(audio=base64.b64encode(block).decode())


PASSED = (
    "session.output_audio.delta",
    "session.output_transcript.delta",
    "session.input_transcript.delta",
    "session.usage.updated",
)
"""What comes by itself while one waits for something else."""


async def test_a_conversation(address: str) -> None:
    client = AsyncOpenAI(base_url=f"http://{address}/v1", api_key="none", max_retries=0)
    async with client, client.live.connect() as connection:
        line = LiveLine(connection)
        audio: Any = {"format": {"type": "audio/pcm", "rate": RATE_HZ}}
        await connection.session.start(session={"model": "any", "audio": audio})
        started = await line.until("session.started")
        assert started.session.status == "active"
        microphone = asyncio.get_running_loop().create_task(line.run_microphone())
        try:
            line.words += said("What is twelve times nine?")
            async with asyncio.timeout(WAIT_S):
                while "eight" not in words(line, "output"):
                    await line.until("session.output_transcript.delta")
            await connection.session.input_audio.mute()
            await line.until("session.input_audio.muted")
            await connection.session.input_audio.unmute()
            await line.until("session.input_audio.unmuted")
        finally:
            microphone.cancel()
            await asyncio.wait({microphone})
        await connection.session.close()
        closed = await line.until("session.closed")
    assert (closed.reason, closed.usage.seconds > 0) == ("close_requested", True)
    line.log.end()
    assert line.log.faults == []
    assert "12" in normalise(words(line, "input"))
    sound = b"".join(
        base64.b64decode(event["delta"]) for event in line.log.of("session.output_audio.delta")
    )
    assert "108" in normalise(recognise(sound))


def words(line: LiveLine, side: str) -> str:
    """Return what was heard or said so far."""
    return "".join(event["delta"] for event in line.log.of(f"session.{side}_transcript.delta"))
