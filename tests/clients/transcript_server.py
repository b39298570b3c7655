"""A small WebSocket server that plays golden transcripts of the duplex dialect.

A transcript is JSON lines: `in` waits for a client event that has at least these fields, `out`
sends a server event, `close` closes with a code, `abort` drops the connection. In what is sent,
`@pcm:N` stands for N ms of audio and `@event_id` for the `event_id` of the client event waited
for last. `gate` waits until the test opens the gate of that name.

A session that is resumed is several transcripts, one for each connection; a connection for which
there is none is dropped before the handshake.
"""

import asyncio
import base64
import json
from collections import defaultdict
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
    """Plays its lines to every client, or each of several transcripts to one, in order."""

    lines: list[Line]
    further: list[list[Line]] | None = None
    """Transcripts of the second connection and those after it; None: all get `lines`."""
    api_key: str | None = None
    url: str = ""
    received: list[Line] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    """What each connection asked for."""
    gates: dict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))

    def sent(self, kind: str) -> list[Line]:
        return [event for event in self.received if event["type"] == kind]

    def admit(self, connection: ServerConnection, request: Request) -> Response | None:
        self.paths.append(request.path)
        if self.further is not None and len(self.paths) > 1 + len(self.further):
            connection.transport.abort()
        if self.api_key in (None, request.headers.get("Authorization", "").removeprefix("Bearer ")):
            return None
        return connection.respond(HTTPStatus.UNAUTHORIZED, "no\n")

    async def play(self, connection: ServerConnection) -> None:
        is_first = self.further is None or len(self.paths) == 1
        lines = self.lines if is_first or not self.further else self.further[len(self.paths) - 2]
        try:
            await self._play(connection, lines)
            await self._drain(connection)
        except ConnectionClosed:
            pass

    async def _play(self, connection: ServerConnection, lines: list[Line]) -> None:
        event_id = ""
        for line in lines:
            match line:
                case {"in": wanted}:
                    event_id = (await self._await(connection, wanted)).get("event_id", "")
                case {"out": event}:
                    await connection.send(json.dumps(_filled(event, event_id)))
                case {"close": code}:
                    await connection.close(code, line.get("reason", ""))
                case {"abort": True}:
                    connection.transport.abort()
                case {"gate": name}:
                    await self.gates[name].wait()
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
    lines: str | list[Line],
    *,
    then: list[list[Line]] | None = None,
    api_key: str | None = None,
) -> AsyncIterator[TranscriptServer]:
    """Serve a transcript, by name or by its lines, on a free loopback port."""
    found = transcript(lines) if isinstance(lines, str) else lines
    server = TranscriptServer(found, then, api_key=api_key)
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
