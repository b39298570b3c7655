"""A WebSocket in memory."""

import asyncio

from serve_app.gateway.connection import SocketGone

WAIT_S = 15.0
"""Only a test that has gone wrong ever waits so long."""


class MemorySocket:
    """Implements `serve_app.gateway.connection.Socket`; the test is the client at the other end."""

    def __init__(self) -> None:
        self.closed: tuple[int, str] | None = None
        self.sending_at_once = 0
        self.most_sending_at_once = 0
        self._to_server: asyncio.Queue[str | bytes | None] = asyncio.Queue()
        self._to_client: asyncio.Queue[str] = asyncio.Queue()
        self._reads = asyncio.Event()
        self._reads.set()
        self._is_gone = False
        self._ended = asyncio.Event()

    # --- the server's end ---------------------------------------------------------------------

    async def receive(self) -> str | bytes | None:
        """Wait for what the client sends."""
        return await self._to_server.get()

    async def send(self, text: str) -> None:
        """Hand `text` to the client, once it reads."""
        self.sending_at_once += 1
        self.most_sending_at_once = max(self.most_sending_at_once, self.sending_at_once)
        try:
            await self._reads.wait()
            # A real socket lets others run here; two writers would interleave.
            await asyncio.sleep(0)
            if self._is_gone:
                raise SocketGone
            self._to_client.put_nowait(text)
        finally:
            self.sending_at_once -= 1

    async def close(self, code: int, reason: str) -> None:
        """Close with a code."""
        await self._reads.wait()
        if self._is_gone:
            raise SocketGone
        self.closed = (code, reason)
        self._ended.set()

    # --- the client's end ---------------------------------------------------------------------

    def say(self, frame: str | bytes) -> None:
        """Send a frame to the server."""
        self._to_server.put_nowait(frame)

    async def hear(self) -> str:
        """Wait for the server's next text."""
        async with asyncio.timeout(WAIT_S):
            return await self._to_client.get()

    def heard(self) -> list[str]:
        """Take all that has come so far."""
        return [self._to_client.get_nowait() for _ in range(self._to_client.qsize())]

    async def wait_closed(self) -> tuple[int, str]:
        """Wait for the server to close; return its code and reason."""
        async with asyncio.timeout(WAIT_S):
            await self._ended.wait()
        assert self.closed is not None
        return self.closed

    def stop_reading(self) -> None:
        """Let the server's sends wait."""
        self._reads.clear()

    def read_again(self) -> None:
        """Let the server's sends through."""
        self._reads.set()

    def vanish(self) -> None:
        """Break the connection."""
        self._is_gone = True
        self._reads.set()
        self._to_server.put_nowait(None)
