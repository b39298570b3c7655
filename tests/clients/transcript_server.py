"""A small WebSocket server that plays golden transcripts of the duplex dialect.

A transcript is JSON lines: `in` waits for a client event that has at least these fields, `out`
sends a server event, `close` closes with a code, `abort` drops the connection. In what is sent,
`@pcm:N` stands for N ms of audio and `@event_id` for the `event_id` of the client event waited
for last.
"""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

TRANSCRIPTS = Path(__file__).parent / "transcripts"
Line = dict[str, Any]


def transcript(name: str) -> list[Line]:
    text = (TRANSCRIPTS / f"{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def pcm(milliseconds: int) -> bytes:
    """Audio at 24 kHz in which every sample tells where it is, so that a lost one is seen."""
    samples = range(milliseconds * 24)
    return b"".join((n % 30_000 + 1).to_bytes(2, "little", signed=True) for n in samples)


@dataclass
class TranscriptServer:
    """Plays the same lines to every client and keeps what clients sent."""

    lines: list[Line]
    api_key: str | None = None
    url: str = ""
    received: list[Line] = field(default_factory=list)

    def sent(self, kind: str) -> list[Line]:
        return [event for event in self.received if event["type"] == kind]

    def admit(self, connection: ServerConnection, request: Request) -> Response | None:
        if self.api_key in (None, request.headers.get("Authorization", "").removeprefix("Bearer ")):
            return None
        return connection.respond(HTTPStatus.UNAUTHORIZED, "no\n")

    async def play(self, connection: ServerConnection) -> None:
        try:
            await self._play(connection)
            await self._drain(connection)
        except ConnectionClosed:
            pass

    async def _play(self, connection: ServerConnection) -> None:
        event_id = ""
        for line in self.lines:
            match line:
                case {"in": wanted}:
                    event_id = (await self._await(connection, wanted)).get("event_id", "")
                case {"out": event}:
                    await connection.send(json.dumps(_filled(event, event_id)))
                case {"close": code}:
                    await connection.close(code, line.get("reason", ""))
                case {"abort": True}:
                    connection.transport.abort()
                case _:
                    raise AssertionError(f"not a line of a transcript: {line}")

    async def _await(self, connection: ServerConnection, wanted: Line) -> Line:
        while True:
            event: Line = json.loads(await connection.recv())
            self.received.append(event)
            if _has(event, wanted):
                return event

    async def _drain(self, connection: ServerConnection) -> None:
        async for frame in connection:
            self.received.append(json.loads(frame))


@asynccontextmanager
async def playing(
    lines: str | list[Line], *, api_key: str | None = None
) -> AsyncIterator[TranscriptServer]:
    """Serve a transcript, by name or by its lines, on a free loopback port."""
    found = transcript(lines) if isinstance(lines, str) else lines
    server = TranscriptServer(found, api_key=api_key)
    async with serve(server.play, "127.0.0.1", 0, process_request=server.admit) as running:
        port = next(iter(running.sockets)).getsockname()[1]
        server.url = f"ws://127.0.0.1:{port}/v1/realtime?duplex=1"
        yield server


def _filled(value: Any, event_id: str) -> Any:
    match value:
        case dict():
            return {name: _filled(inner, event_id) for name, inner in value.items()}
        case "@event_id":
            return event_id
        case str() if value.startswith("@pcm:"):
            return base64.b64encode(pcm(int(value.removeprefix("@pcm:")))).decode("ascii")
        case _:
            return value


def _has(event: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return isinstance(event, dict) and all(
            name in event and _has(event[name], inner) for name, inner in wanted.items()
        )
    return bool(event == wanted)
