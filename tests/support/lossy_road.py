"""A TCP relay on the way to a service, which a test can cut."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class LossyRoad:
    """Relays bytes both ways. `cut` breaks every connection; what was on its way is lost."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: set[asyncio.StreamWriter] = set()
        self._lost_at: bytes | None = None
        self.port = 0
        self.connections = 0

    @property
    def url(self) -> str:
        """Address of the service, by this road."""
        return f"ws://127.0.0.1:{self.port}/v1/realtime?duplex=1"

    def cut(self) -> None:
        """Break every connection with a reset."""
        for writer in self._writers:
            writer.transport.abort()

    def lose_at(self, words: bytes) -> None:
        """Break the client's end when the service next says `words`, which are lost.

        The service is not told.
        """
        self._lost_at = words

    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect one client with the service until either goes away."""
        self.connections += 1
        service_reader, service_writer = await asyncio.open_connection("127.0.0.1", self._port)
        ends = {writer, service_writer}
        self._writers |= ends
        try:
            async with asyncio.TaskGroup() as group:
                asking = group.create_task(_pump(reader, service_writer))
                group.create_task(self._answer(service_reader, writer, asking))
        finally:
            self._writers -= ends
            for end in ends:
                end.transport.abort()

    async def _answer(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        asking: "asyncio.Task[None]",
    ) -> None:
        """Bring the client what the service says, as long as it is there."""
        is_there = True
        with suppress(ConnectionError):
            while block := await reader.read(65_536):
                if self._lost_at is not None and self._lost_at in block:
                    self._lost_at, is_there = None, False
                    asking.cancel()
                    writer.transport.abort()
                if is_there:
                    writer.write(block)
                    await writer.drain()
        writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while block := await reader.read(65_536):
            writer.write(block)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def lossy_road(port: int) -> AsyncIterator[LossyRoad]:
    """Relay from a free port of this machine to another."""
    road = LossyRoad(port)
    server = await asyncio.start_server(road.relay, "127.0.0.1", 0)
    road.port = server.sockets[0].getsockname()[1]
    try:
        yield road
    finally:
        server.close()
        road.cut()
