"""Opens the WebSocket and turns every way that can fail into one of two errors."""

from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as websocket_connect
from websockets.exceptions import InvalidHandshake, InvalidStatus, InvalidURI

from clients.errors import DuplexRefused, DuplexUnreachable

DEFAULT_URL: Final = "ws://127.0.0.1:8000/v1/realtime?duplex=1"
API_KEY_VARIABLE: Final = "DUPLEX_API_KEY"
"""Environment variable from which the programs of this package take an API key."""

_TRY_AGAIN_STATUSES: Final = frozenset({429, 502, 503, 504})
_HINTS: Final = {
    401: "the API key is missing or wrong",
    403: "this client may not connect here, or the path is not /v1/realtime?duplex=1",
    404: "there is no such path; is it /v1/realtime?duplex=1",
}


async def connect(url: str, *, api_key: str | None, close_timeout_s: float) -> ClientConnection:
    """Return an open WebSocket. Raises DuplexUnreachable, or DuplexRefused for an HTTP status."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        return await websocket_connect(
            url,
            additional_headers=headers,
            # Base64 audio hardly compresses, and the server pays for trying.
            compression=None,
            max_size=None,
            close_timeout=close_timeout_s,
            proxy=None if is_loopback(url) else True,
        )
    except InvalidStatus as error:
        status = error.response.status_code
        hint = _HINTS.get(status, HTTPStatus(status).phrase if status in _KNOWN else "")
        raise DuplexRefused(
            f"http_{status}", hint or "unexpected status", retryable=status in _TRY_AGAIN_STATUSES
        ) from error
    except (OSError, InvalidHandshake, InvalidURI, ValueError) as error:
        is_refused = isinstance(error, ConnectionRefusedError)
        hint = "; is the service running (make serve)?" if is_refused else ""
        raise DuplexUnreachable(f"can not connect to {url}: {error}{hint}") from error


def is_loopback(url: str) -> bool:
    """Whether a URL names this machine, where a proxy from the environment is of no use."""
    return urlsplit(url).hostname in {"localhost", "127.0.0.1", "::1"}


_KNOWN: Final = frozenset(status.value for status in HTTPStatus)
