"""What is asked of a path that does not answer it: WebSockets elsewhere, pages of a WebSocket."""

from typing import Final

from fastapi import FastAPI, WebSocket
from fastapi.responses import JSONResponse

from serve_app.auth import Refusal
from serve_app.door import refuse_socket

SOCKET_PATHS: Final = ("/v1/realtime", "/v1/live/sessions", "/v1/duplex")
UPGRADE_REQUIRED: Final = 426
_WHERE: Final = (
    f"WebSockets are at {', '.join(SOCKET_PATHS)}. A client that adds the last part by itself, "
    "such as the openai package, needs a base_url that ends in /v1."
)


def add_refusals(api: FastAPI) -> None:
    """Add them behind every other route but that of the page."""
    for path in SOCKET_PATHS:
        api.add_api_route(path, _open_as_socket, methods=["GET"])

    @api.websocket("/{path:path}")
    async def nothing_here(socket: WebSocket, path: str) -> None:
        await refuse_socket(socket, Refusal(404, f"There is no WebSocket at /{path}. {_WHERE}"))


async def _open_as_socket() -> JSONResponse:
    error = {
        "type": "invalid_request_error",
        "code": "upgrade_required",
        "message": "Open this address as a WebSocket; docs/wire/index.md says what it speaks.",
        "param": None,
    }
    headers = {"Upgrade": "websocket", "Connection": "Upgrade"}
    return JSONResponse({"error": error}, status_code=UPGRADE_REQUIRED, headers=headers)
