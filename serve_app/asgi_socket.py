"""A Starlette WebSocket as the connection sees it."""

from fastapi import WebSocket
from ray.exceptions import RayError
from starlette.websockets import WebSocketDisconnect

from serve_app.connection import SocketGone


class AsgiSocket:
    """An accepted WebSocket whose peer may leave at any time."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    async def receive(self) -> str | bytes | None:
        """Wait for one frame; None when the client is gone."""
        try:
            message = await self._socket.receive()
        except RayError:
            # The proxy that holds the client's socket has died, and the socket with it.
            return None
        if message["type"] == "websocket.disconnect":
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
        try:
            await self._socket.close(code, reason)
        except (WebSocketDisconnect, RuntimeError, RayError) as error:
            raise SocketGone from error
