"""A person who talks to the service through the `openai` package, whose every frame is judged."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from openai import AsyncOpenAI
from openai.resources.realtime.realtime import AsyncRealtimeConnection

from tests.support.agents_parser import AgentsParser
from tests.support.realtime_log import RealtimeLog

Json = dict[str, Any]
RATE_HZ = 24_000
BLOCK_MS = 40
BLOCK_BYTES = RATE_HZ * BLOCK_MS // 1000 * 2
WAIT_S = 120.0
"""Only a test that has gone wrong ever waits so long."""


class Line:
    """One conversation. `connection` is the package's own, to speak with."""

    def __init__(self, connection: AsyncRealtimeConnection) -> None:
        self.connection = connection
        self.log = RealtimeLog()
        self.parser = AgentsParser()

    async def hear(self) -> Json:
        """Wait for the next event; the package has received it."""
        async with asyncio.timeout(WAIT_S):
            frame = (await self.connection.recv_bytes()).decode()
        self.log.hear(frame)
        self.parser.hear(frame)
        event: Json = json.loads(frame)
        assert self.connection.parse_event(frame).type == event["type"]
        return event

    async def until(self, kind: str) -> Json:
        """Read on to the next event of a type."""
        while (event := await self.hear())["type"] != kind:
            assert kind == "error" or event["type"] != "error", event
        return event

    async def answer(self) -> Json:
        """Read on to the end of an answer; return it as its end shows it."""
        response: Json = (await self.until("response.done"))["response"]
        return response

    async def say(self, sound: bytes) -> None:
        """Send sound as fast as it goes."""
        for start in range(0, len(sound), BLOCK_BYTES):
            await self.append(sound[start : start + BLOCK_BYTES])

    async def append(self, sound: bytes) -> None:
        """Send one piece of sound."""
        await self.connection.input_audio_buffer.append(audio=base64.b64encode(sound).decode())

    async def ask(self, text: str) -> None:
        """Type a message."""
        content = {"type": "input_text", "text": text}
        item: Any = {"type": "message", "role": "user", "content": [content]}
        await self.connection.conversation.item.create(item=item)

    async def update(self, **session: Any) -> Json:
        """Change settings; return them as they are then."""
        settings: Any = {"type": "realtime", **session}
        await self.connection.session.update(session=settings)
        updated: Json = (await self.until("session.updated"))["session"]
        return updated

    def sound_of(self, response_id: str) -> bytes:
        """Return an answer's sound."""
        deltas = self.log.of("response.output_audio.delta")
        mine = (e["delta"] for e in deltas if e["response_id"] == response_id)
        return b"".join(base64.b64decode(delta) for delta in mine)

    def assert_faultless(self) -> None:
        """Show that neither the types nor the strictest parser found anything."""
        assert self.log.faults == []
        assert self.parser.faults == []


class Microphone:
    """Sends in real time: silence, and sound when there is some to say."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._words = bytearray()
        self._said = asyncio.Event()

    async def say(self, sound: bytes) -> None:
        """Say it, and wait until it is out."""
        self._said.clear()
        self._words += sound
        await self._said.wait()

    async def run(self) -> None:
        """Be on, until cancelled."""
        start_s = time.monotonic()
        blocks = 0
        while True:
            blocks += 1
            due_s = start_s + blocks * BLOCK_MS / 1000
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            block = bytes(self._words[:BLOCK_BYTES])
            del self._words[:BLOCK_BYTES]
            await self._line.append(block.ljust(BLOCK_BYTES, b"\0"))
            if not self._words:
                self._said.set()


@asynccontextmanager
async def openai_line(address: str, model: str = "gpt-realtime") -> AsyncIterator[Line]:
    """Call the service at HOST:PORT; at the end the whole conversation has been right."""
    client = AsyncOpenAI(base_url=f"http://{address}/v1", api_key="none", max_retries=0)
    async with client, client.realtime.connect(model=model) as connection:
        line = Line(connection)
        yield line
    line.assert_faultless()


@asynccontextmanager
async def microphone_on(line: Line) -> AsyncIterator[Microphone]:
    """Keep a microphone on."""
    microphone = Microphone(line)
    running = asyncio.get_running_loop().create_task(microphone.run())
    try:
        yield microphone
    finally:
        running.cancel()
        await asyncio.wait({running})
