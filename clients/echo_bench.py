"""`python -m clients.echo_bench`: a bare uvicorn WebSocket echo under the frames of a load run.

It tells what the wire, the WebSocket server and this machine cost by themselves, so that a
service's figure can be quoted as a ratio to it, from one run.
"""

import argparse
import asyncio
import contextlib
import json
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from websockets.asyncio.client import ClientConnection

from clients import commands
from clients.arguments import positive
from clients.connecting import connect
from clients.load_plan import LoadPlan
from clients.load_report import EchoFigures
from clients.provenance import provenance
from clients.round_trips import RoundTrips
from clients.source import RecordingSource
from clients.stats import summarize_tail
from clients.synthetic import bursts

USAGE: Final = 2

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the echo and return the exit status."""
    arguments = build_parser().parse_args(argv)
    if arguments.serve:
        asyncio.run(serve_echo())
        return 0
    recording, spans = bursts()
    plan = LoadPlan(
        url="",
        settings={},
        recording=recording,
        spans=spans,
        sessions=arguments.sessions,
        seconds=arguments.seconds,
        ramp_s=arguments.ramp_s,
        chunk_ms=arguments.chunk_ms,
    )
    made = provenance(sys.argv if argv is None else ["clients.echo_bench", *argv])
    figures = asyncio.run(measure_echo(plan, seconds=plan.seconds))
    if arguments.json is not None:
        contents = {"made": asdict(made), **asdict(figures)}
        arguments.json.write_text(json.dumps(contents, indent=2) + "\n", encoding="utf-8")
    for name in ("append_rtt_ms", "heartbeat_rtt_ms", "send_lag_ms"):
        print(f"{name:<17} {asdict(figures)[name]}")
    return 0


def build_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(prog="python -m clients.echo_bench", description=main.__doc__)
    parser.add_argument("--sessions", type=positive, default=16, metavar="N", help="%(default)s")
    parser.add_argument("--seconds", type=float, default=10.0, metavar="S", help="%(default)s")
    parser.add_argument("--ramp-s", type=float, default=1.0, help="default: %(default)s")
    parser.add_argument("--chunk-ms", type=positive, default=200, help="default: %(default)s")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the figures here")
    parser.add_argument("--serve", action="store_true", help="only be the echo; prints its port")
    return parser


async def measure_echo(plan: LoadPlan, *, seconds: float) -> EchoFigures:
    """Start an echo in a process of its own and send it the frames of `plan`."""
    async with _echo_server() as (port, name):
        here = replace(plan, url=f"ws://127.0.0.1:{port}/", seconds=seconds)
        sessions = [_EchoSession(index, here) for index in range(plan.sessions)]
        async with asyncio.TaskGroup() as group:
            for session in sessions:
                group.create_task(session.run())
    return EchoFigures(
        server=name,
        sessions=plan.sessions,
        seconds=seconds,
        append_rtt_ms=summarize_tail([ms for one in sessions for ms in one.append_ms]),
        heartbeat_rtt_ms=summarize_tail([ms for one in sessions for ms in one.heartbeat_ms]),
        send_lag_ms=summarize_tail([ms for one in sessions for ms in one.lags_ms]),
    )


class _EchoSession:
    """Sends appends and heartbeats at the pace of a load session and times their echoes."""

    def __init__(self, index: int, plan: LoadPlan) -> None:
        self._index = index
        self._plan = plan
        self._trips = RoundTrips()
        self._kinds: list[bool] = []
        self.lags_ms: list[float] = []

    @property
    def append_ms(self) -> list[float]:
        return self._of_kind(is_heartbeat=False)

    @property
    def heartbeat_ms(self) -> list[float]:
        return self._of_kind(is_heartbeat=True)

    async def run(self) -> None:
        await asyncio.sleep(self._plan.start_after_s(self._index))
        connection = await connect(self._plan.url, api_key=None, close_timeout_s=5.0)
        appends = int(self._plan.seconds * 1000 / self._plan.chunk_ms)
        frames = appends + appends // self._plan.heartbeat_every
        async with asyncio.TaskGroup() as group:
            group.create_task(self._receive(connection, frames))
            group.create_task(self._send(connection, appends))
        await connection.close()

    async def _send(self, connection: ClientConnection, appends: int) -> None:
        plan = self._plan
        source = RecordingSource(plan.recording, plan.spans, chunk_ms=plan.chunk_ms, repeats=True)
        for number in range(1, appends + 1):
            block = await source.read()
            await self._ask(connection, commands.append_audio(block.pcm, {}), is_heartbeat=False)
            self.lags_ms.append(max(0.0, time.monotonic() - block.due_s) * 1000)
            if number % plan.heartbeat_every == 0:
                await self._ask(connection, commands.heartbeat(), is_heartbeat=True)

    async def _ask(
        self, connection: ClientConnection, command: commands.Command, *, is_heartbeat: bool
    ) -> None:
        text = json.dumps(command, separators=(",", ":"))
        self._kinds.append(is_heartbeat)
        self._trips.sent(time.monotonic())
        await connection.send(text)

    async def _receive(self, connection: ClientConnection, frames: int) -> None:
        for _ in range(frames):
            await connection.recv()
            self._trips.answered(time.monotonic())

    def _of_kind(self, *, is_heartbeat: bool) -> list[float]:
        pairs = zip(self._trips.taken_ms, self._kinds, strict=False)
        return [ms for ms, kind in pairs if kind is is_heartbeat]


@contextlib.asynccontextmanager
async def _echo_server() -> AsyncIterator[tuple[int, str]]:
    root = str(Path(__file__).parent.parent)
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "clients.echo_bench",
        "--serve",
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert process.stdout is not None
    try:
        line = await process.stdout.readline()
        if not line:
            raise RuntimeError("the echo server did not start; is uvicorn installed?")
        started = json.loads(line)
        yield int(started["port"]), str(started["server"])
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def serve_echo() -> None:
    """Be the echo on a free loopback port until terminated; the port is printed as JSON."""
    # Only here: everything else in this package does without a server.
    import uvicorn  # noqa: PLC0415

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()  # before the port is told: a client may connect at once
    config = uvicorn.Config(_echo, lifespan="off", log_level="warning", ws="auto")
    config.load()
    protocol = getattr(config.ws_protocol_class, "__name__", "")
    name = f"uvicorn {uvicorn.__version__} {protocol}".strip()
    started = {"port": listener.getsockname()[1], "server": name}
    print(json.dumps(started), flush=True)
    await uvicorn.Server(config).serve(sockets=[listener])


async def _echo(scope: _Message, receive: _Receive, send: _Send) -> None:
    """ASGI: give every text frame back."""
    if scope["type"] != "websocket":
        return
    while True:
        message = await receive()
        match message["type"]:
            case "websocket.connect":
                await send({"type": "websocket.accept"})
            case "websocket.receive":
                await send({"type": "websocket.send", "text": message["text"]})
            case _:
                return


if __name__ == "__main__":
    sys.exit(main())
