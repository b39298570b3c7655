"""A service that runs somewhere, seen through real sockets; time is what it is."""

import asyncio
import json
from dataclasses import dataclass
from typing import Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.contract.transcript import Json

PATIENCE_S = 120.0
"""Only a test that has gone wrong ever waits so long."""


@dataclass
class SocketLine:
    """Implements `tests.contract.player.Line`."""

    connection: ClientConnection

    async def say(self, text: str) -> None:
        """Send a frame."""
        await self.connection.send(text)

    async def hear(self) -> Json:
        """Wait for the next event."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                event: Json = json.loads(await self.connection.recv())
        except ConnectionClosed:
            code, reason = self.connection.close_code, self.connection.close_reason
            return {"type": "closed", "code": code, "reason": reason}
        return event

    async def unread(self) -> list[Json]:
        """Nobody can know what is on its way; the next line that waits will see it."""
        return []

    async def vanish(self) -> None:
        """Break the connection."""
        self.connection.transport.abort()

    async def stall(self) -> None:
        """Buffers on the way would hide it."""
        raise NotImplementedError

    async def read_again(self) -> None:
        """It has never stopped."""
        raise NotImplementedError


class SocketStage:
    """Implements `tests.contract.player.Stage` for a service at an address."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._connections: list[ClientConnection] = []

    async def connect(self, target: str) -> SocketLine:
        """Open a socket."""
        url = f"ws://{self._address}{target}"
        connection = await connect(url, max_size=None, compression=None)
        self._connections.append(connection)
        return SocketLine(connection)

    async def until(self, at_s: float) -> None:
        """Go on at once: what a line waits for has come when the lines before it have."""

    async def settle(self) -> None:
        """Go on at once."""

    def now(self) -> float | None:
        """Real time is nobody's business here."""
        return None

    async def direct(self, directive: Json) -> None:
        """The stages are out of reach."""
        raise NotImplementedError(directive)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Hang up, however it went."""
        for connection in self._connections:
            await connection.close()
