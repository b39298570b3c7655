"""The gateway under a real uvicorn server, with the scripted model in this process."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from http.client import HTTPResponse
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import uvicorn
from websockets.asyncio.client import ClientConnection, connect

from serve_app.gateway.api import build_api
from serve_app.gateway.gateway import Gateway
from serve_app.metrics.exporters import ReadExporters
from serve_app.settings import GatewaySettings
from session.config import SessionLimits
from tests.fakes.meter import CountedMeter
from tests.fakes.scorer import open_energy_scorer
from tests.fakes.stages import ScriptedDirectory

WAIT_S = 15.0
"""Only a test that has gone wrong ever waits so long."""


@dataclass(frozen=True)
class Answer:
    """An HTTP answer."""

    status: int
    body: Any
    headers: Mapping[str, str]


@dataclass
class Service:
    """A running gateway, and ways to reach it."""

    gateway: Gateway
    directory: ScriptedDirectory
    port: int
    meter: CountedMeter

    def dial(self, query: str = "duplex=1", **options: Any) -> connect:
        """Return a connection to open with `async with`."""
        url = f"ws://127.0.0.1:{self.port}/v1/realtime?{query}"
        return connect(url, max_size=None, compression=None, **options)

    async def get(self, path: str, **headers: str) -> Answer:
        """Ask for a page; JSON is read."""
        request = Request(f"http://127.0.0.1:{self.port}{path}", headers=headers)
        return await asyncio.to_thread(_fetch, request)

    async def post(self, path: str, body: bytes, **headers: str) -> Answer:
        """Send a body to a path; JSON is read."""
        typed = {"Content-Type": "application/json", **headers}
        url = f"http://127.0.0.1:{self.port}{path}"
        request = Request(url, data=body, headers=typed, method="POST")
        return await asyncio.to_thread(_fetch, request)

    async def ask(self, method: str, path: str, **headers: str) -> Answer:
        """Send a request without a body; JSON is read."""
        url = f"http://127.0.0.1:{self.port}{path}"
        return await asyncio.to_thread(_fetch, Request(url, headers=headers, method=method))

    async def until_open(self, sessions: int) -> None:
        """Wait until no more than so many sessions hold stages."""
        async with asyncio.timeout(WAIT_S):
            while self.directory.open_sessions > sessions:
                await self.directory.changed()

    async def idle(self) -> None:
        """Wait until no session is left."""
        async with asyncio.timeout(WAIT_S):
            await self.gateway.sessions.wait_idle()


@asynccontextmanager
async def serving(
    directory: ScriptedDirectory,
    *,
    limits: SessionLimits | None = None,
    read_exporters: ReadExporters | None = None,
    **settings: Any,
) -> AsyncIterator[Service]:
    """Run the gateway on a free port of this machine; at the end show that nothing is held."""
    # Clients that hang up in a test do not come back, unless the test says so.
    bounds = limits or SessionLimits(disconnect_grace_s=0)
    base = GatewaySettings(limits=bounds, allow_unauthenticated=True)
    meter = CountedMeter()
    gateway = Gateway(
        replace(base, **settings),
        lambda: _found(directory),
        open_scorer=open_energy_scorer,
        meter=meter,
        read_exporters=read_exporters,
    )
    # With its protocol named, asyncio sends small frames at once (TCP_NODELAY).
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            build_api(gateway), log_config=None, lifespan="on", timeout_graceful_shutdown=5
        )
        started = asyncio.Event()
        server = _Server(config, started)
        task = asyncio.create_task(server.serve(sockets=[listener]))
        async with asyncio.timeout(WAIT_S):
            await started.wait()
        try:
            yield Service(gateway, directory, listener.getsockname()[1], meter)
        finally:
            server.should_exit = True
            await task
    assert directory.open_sessions == directory.bound_sessions == 0


class _Server(uvicorn.Server):
    """A server that says when it listens."""

    def __init__(self, config: uvicorn.Config, started: asyncio.Event) -> None:
        super().__init__(config)
        self._says_started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets)
        self._says_started.set()


async def hear(line: ClientConnection) -> dict[str, Any]:
    """Wait for the server's next event."""
    async with asyncio.timeout(WAIT_S):
        event: dict[str, Any] = json.loads(await line.recv())
    return event


async def until(line: ClientConnection, kind: str) -> list[dict[str, Any]]:
    """Read on to the first event of a type; return all that was read."""
    read = [await hear(line)]
    while read[-1]["type"] != kind:
        read.append(await hear(line))
    return read


async def _found(directory: ScriptedDirectory) -> ScriptedDirectory:
    if directory.unreachable is not None:
        raise directory.unreachable
    return directory


def _fetch(request: Request) -> Answer:
    try:
        with urlopen(request, timeout=WAIT_S) as response:
            return Answer(response.status, _read(response), dict(response.headers))
    except HTTPError as error:
        with error:
            return Answer(error.code, _read(error), dict(error.headers))


def _read(response: HTTPResponse | HTTPError) -> Any:
    body = response.read()
    is_json = response.headers.get_content_type() == "application/json"
    return json.loads(body) if is_json and body else body
