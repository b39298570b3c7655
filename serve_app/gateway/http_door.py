"""Turns requests away before anything is opened for them; `Doorkeeper` decides which.

Rule 1: a path is judged as the routes see it: below the prefix that the service is served under.
Rule 2: a path of which that can not be told, or with a character that is not seen, is nowhere.
"""

from collections.abc import Callable, Mapping
from typing import Final

from fastapi import WebSocket
from starlette._utils import get_route_path
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from serve_app.access.admin_door import ADMIN_PATHS, AdminDoor
from serve_app.access.doorkeeper import Doorkeeper, Refusal
from session.errors import ClientError, ServerDraining

LIVE_PATH = "/health/live"
"""Says only that the process lives; a prober has no key."""
KEY_PATHS = ("/v1/", "/debug/")
READING_METHODS = ("GET", "HEAD")
"""They change nothing, and a browser shows the answer to no page from elsewhere."""
_NOWHERE: Final = "There is nothing at this path."


class HttpDoor:
    """ASGI middleware that judges HTTP requests.

    Of sockets it judges the path alone; who may open one is decided by their route.
    """

    def __init__(
        self,
        app: ASGIApp,
        door: Doorkeeper,
        admin: AdminDoor,
        refused: Callable[[str, Refusal], None],
        key_paths: tuple[str, ...],
    ) -> None:
        self._app = app
        self._door = door
        self._admin = admin
        self._refused = refused
        self._key_paths = key_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with the refusal, or pass the request on."""
        refusal = self._refusal(scope) if scope["type"] in ("http", "websocket") else None
        if refusal is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            self._refused("http", refusal)
            await refusal_response(refusal)(scope, receive, send)
        else:
            self._refused("socket", refusal)
            await refuse_socket(WebSocket(scope, receive, send), refusal)

    def _refusal(self, scope: Scope) -> Refusal | None:
        path, headers = path_in(scope), Headers(scope=scope)
        if path is None:
            return Refusal(404, _NOWHERE)
        if scope["type"] == "websocket" or path == LIVE_PATH:
            return None
        if scope["method"] not in READING_METHODS:
            from_elsewhere = self._door.refuse_origin(headers)
            if from_elsewhere is not None:
                return from_elsewhere
        if path.startswith(ADMIN_PATHS):
            return self._refuse_operator(scope["method"], headers)
        if path.startswith(self._key_paths):
            return self._door.refuse(headers)
        return self._door.refuse_public()

    def _refuse_operator(self, method: str, headers: Headers) -> Refusal | None:
        if method not in READING_METHODS:
            from_elsewhere = self._door.refuse_operating_page(headers)
            if from_elsewhere is not None:
                return from_elsewhere
        if self._admin.is_open:
            return self._door.refuse_host(headers)
        return self._admin.refuse(headers)


def path_in(scope: Scope) -> str | None:
    """Return the path that the routes compare; None where it is not below the service's prefix."""
    path: str = scope["path"]
    prefix: str = scope.get("root_path", "").rstrip("/")
    if not f"{path}/".startswith(f"{prefix}/") or any(map(_is_unseen, path)):
        return None
    # Not in Starlette's public interface; its routes use it, and the version is pinned.
    return get_route_path(scope)


def _is_unseen(character: str) -> bool:
    """Whether a character is a control character: a route would match with a newline behind it."""
    return character < " " or "\x7f" <= character <= "\x9f"


_CODES: Final[Mapping[int, str]] = {
    401: "invalid_api_key",
    404: "not_found",
    503: ServerDraining.code,
}
"""What the errors of some statuses are called."""
_HEADERS: Final[Mapping[int, Mapping[str, str]]] = {
    401: {"WWW-Authenticate": "Bearer"},
    503: {"Retry-After": "5"},
}
"""What else they say. Another server may answer by then, or this one after its restart."""


async def refuse_socket(socket: WebSocket, refusal: Refusal) -> None:
    """Turn a WebSocket away during its handshake."""
    # Consume the connect event: a proxy may not pass an answer on before it.
    await socket.receive()
    if "websocket.http.response" in socket.scope.get("extensions", {}):
        await socket.send_denial_response(refusal_response(refusal))
    else:
        await socket.close()  # the server answers 403 by itself


def refusal_response(refusal: Refusal) -> JSONResponse:
    """Return a refusal as an HTTP answer."""
    code = _CODES.get(refusal.status, "forbidden")
    kind = ServerDraining if refusal.status == 503 else ClientError
    error = {"type": kind.wire_type, "code": code, "message": refusal.message}
    headers = _HEADERS.get(refusal.status)
    return JSONResponse({"error": error}, status_code=refusal.status, headers=headers)
