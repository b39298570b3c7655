"""Clients of a service that is being drilled: real sockets, a recorded voice, real time."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from clients.wav import read_wav
from session.unit import INPUT_RATE_HZ, SAMPLE_BYTES
from tests.fakes.wire import append_bytes, update

VOICE: Final = Path(__file__).parents[1] / "data" / "austen_0870.wav"
BYTES_PER_MS: Final = INPUT_RATE_HZ * SAMPLE_BYTES // 1000
BEGINS_MS: Final = 200
"""Where the recorded voice begins to speak; it goes on for more than five seconds."""
CONTINUOUS: Final[dict[str, Any]] = {"extra_body": {"auto_response": True}}
"""The model hears without pause and answers when it likes."""
IN_TURNS: Final[dict[str, Any]] = {"turn_detection": {"type": "server_vad"}}
"""The service finds the end of speech, and the model answers then."""


def voice(ms: int) -> bytes:
    """Return so much of a recorded voice, from its first word on."""
    pcm = read_wav(VOICE).pcm
    return pcm[BEGINS_MS * BYTES_PER_MS :][: ms * BYTES_PER_MS]


def silence(ms: int) -> bytes:
    """Return so much silence."""
    return bytes(ms * BYTES_PER_MS)


def script(**knobs: Any) -> dict[str, str]:
    """Return the session setting that gives this session a script of its own."""
    return {"instructions": f"script:{json.dumps(knobs)}"}


class Line:
    """An open session; what the service says is counted by type as it comes."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.heard: Counter[str] = Counter()
        self.created: dict[str, Any] = {}
        self._changed = asyncio.Condition()

    async def read(self) -> None:
        """Read until the socket is closed."""
        with suppress(ConnectionClosed):
            async for frame in self.socket:
                event = json.loads(frame)
                if event["type"] == "session.created":
                    self.created = event
                async with self._changed:
                    self.heard[event["type"]] += 1
                    self._changed.notify_all()
        async with self._changed:
            self.heard["closed"] += 1
            self._changed.notify_all()

    async def until(self, kind: str, times: int = 1) -> None:
        """Wait until an event has come so often, or the socket is closed."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: self.heard[kind] >= times or self.heard["closed"] > 0
            )

    async def say(self, pcm: bytes, piece_ms: int = 100) -> None:
        """Send sound as a microphone would: each piece when it is over."""
        step = piece_ms * BYTES_PER_MS
        for start in range(0, len(pcm), step):
            piece = pcm[start : start + step]
            await asyncio.sleep(len(piece) / BYTES_PER_MS / 1000)
            await self.socket.send(append_bytes(piece))


def dial(url: str, key: str) -> connect:
    """Return a connection to be made."""
    return connect(
        url,
        max_size=None,
        compression=None,
        additional_headers={"Authorization": f"Bearer {key}"},
        ping_interval=None,
        open_timeout=30,
    )


@asynccontextmanager
async def call(url: str, key: str, **session: Any) -> AsyncIterator[Line]:
    """Open a session with these settings; it may be refused, which counts as an `error`."""
    async with dial(url, key) as socket:
        line = Line(socket)
        reading = asyncio.ensure_future(line.read())
        try:
            await socket.send(update(**session))
            opened = [
                asyncio.ensure_future(line.until(kind)) for kind in ("session.updated", "error")
            ]
            await asyncio.wait(opened, return_when=asyncio.FIRST_COMPLETED)
            for waiting in opened:
                waiting.cancel()
            await asyncio.gather(*opened, return_exceptions=True)
            yield line
        finally:
            reading.cancel()


Talk = Callable[[Line], Awaitable[None]]


async def take_turns(line: Line) -> None:
    """Ask and listen to the whole answer, again and again."""
    while not line.heard["closed"]:
        answers = line.heard["response.done"]
        await line.say(voice(1_200) + silence(900))
        await line.until("response.done", answers + 1)
        await line.say(silence(600))  # the answer may be at its client before it has been played


async def listen_in(line: Line) -> None:
    """Be there, and say nothing aloud."""
    while not line.heard["closed"]:
        await line.say(silence(1_000))


async def interrupt_late(line: Line) -> None:
    """Interrupt each answer with a piece of sound that is sent when all of it is over."""
    await line.say(voice(1_200) + silence(900))
    while not line.heard["closed"]:
        await line.until("response.audio.delta", line.heard["response.audio.delta"] + 1)
        ended = line.heard["response.done"]
        await line.say(voice(900), piece_ms=900)
        await line.until("response.done", ended + 1)
        await line.say(silence(900))


@asynccontextmanager
async def crowd(url: str, key: str, *, of: int, talk: Talk, **session: Any) -> AsyncIterator[None]:
    """Have so many clients talk; one whose session ends begins another."""

    async def go_on() -> None:
        while True:
            with suppress(ConnectionClosed, InvalidStatus, OSError, TimeoutError):
                async with call(url, key, **session) as line:
                    await talk(line)
            await asyncio.sleep(0.5)

    tasks = [asyncio.ensure_future(go_on()) for _ in range(of)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        broken = [end for end in ends if not isinstance(end, asyncio.CancelledError)]
        assert broken == []
