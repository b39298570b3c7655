"""TLS on loopback in front of a service, for clients that speak nothing else.

It ends TLS and passes bytes on. The certificate is made for the occasion.
"""

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import trustme

WAIT_S = 60.0
BUFFER_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class TlsFront:
    """A port that speaks TLS, and what a client must trust to believe it."""

    port: int
    authority: Path

    @property
    def address(self) -> str:
        """Host and port; the certificate is for this name."""
        return f"localhost:{self.port}"


@contextmanager
def tls_front(port: int, folder: Path) -> Iterator[TlsFront]:
    """Put TLS in front of a port of this machine; `folder` gets the certificates."""
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    trusted = folder / "authority.pem"
    authority.cert_pem.write_to_path(trusted)
    front = _Front(port, context)
    thread = threading.Thread(target=front.run, name="tls", daemon=True)
    thread.start()
    try:
        assert front.is_listening.wait(WAIT_S)
        yield TlsFront(front.own_port, trusted)
    finally:
        front.stop()
        thread.join(WAIT_S)


class _Front:
    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self.is_listening = threading.Event()
        self.own_port = 0
        self._port = port
        self._context = context
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()

    def run(self) -> None:
        """Serve until told to stop; in a thread of its own."""
        asyncio.run(self._serve())

    def stop(self) -> None:
        """Let the thread end; from any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stopped.set)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0, ssl=self._context)
        async with server:
            self.own_port = server.sockets[0].getsockname()[1]
            self.is_listening.set()
            await self._stopped.wait()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, before = await asyncio.open_connection("127.0.0.1", self._port)
        ways = [
            asyncio.ensure_future(_copy(reader, before)),
            asyncio.ensure_future(_copy(behind, writer)),
        ]
        # Either end may leave; then the other is left too.
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        for end in (before, writer):
            end.close()
            with suppress(OSError, ssl.SSLError):
                await end.wait_closed()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError, ssl.SSLError):
        while received := await reader.read(BUFFER_BYTES):
            writer.write(received)
            await writer.drain()
