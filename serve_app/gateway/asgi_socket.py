"""A Starlette WebSocket as the connection sees it."""

from typing import Final

from fastapi import WebSocket
from ray.exceptions import RayError
from starlette.websockets import WebSocketDisconnect

from serve_app.gateway.connection import SocketGone

NO_CODE: Final = 1005
"""What stands for the code of a close frame without one (RFC 6455, 7.4.1)."""
ABNORMAL: Final = 1006
"""The same for a connection that ended without a close frame."""


class AsgiSocket:
    """An accepted WebSocket whose peer may leave at any time."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self.ending: tuple[str, int] = ("client", ABNORMAL)
        """Who closed it, and with which code; as long as nobody has, it can only break."""
        self._is_ended = False

    async def receive(self) -> str | bytes | None:
        """Wait for one frame; None when the client is gone."""
        try:
            message = await self._socket.receive()
        except RayError:
            # The proxy that holds the client's socket has died, and the socket with it.
            return None
        if message["type"] == "websocket.disconnect":
            self._end("client", message.get("code") or NO_CODE)
            return None
        text: str | None = message.get("text")
        frame: bytes = message.get("bytes") or b""
        return frame if text is None else text

    async def send(self, text: str) -> None:
        """Send one text frame; raise SocketGone."""
        try:
            await self._socket.send_text(text)
        except (WebSocketDisconnect, RuntimeError, RayError) as error:
            # Servers answer a send after the end with one or the other; a dead proxy with RayError.
            raise SocketGone from error

    async def close(self, code: int, reason: str) -> None:
        """Say why, and close; raise SocketGone."""
        self._end("server", code)
        try:
            await self._socket.close(code, reason)
        except (WebSocketDisconnect, RuntimeError, RayError) as error:
            raise SocketGone from error

    def _end(self, by: str, code: int) -> None:
        if not self._is_ended:
            self._is_ended, self.ending = True, (by, code)
