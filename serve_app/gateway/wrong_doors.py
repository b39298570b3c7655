"""What is asked of a path that does not answer it.

WebSockets elsewhere, pages of a WebSocket, and what is not among the operator's paths.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from fastapi import FastAPI, Request, WebSocket
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from serve_app.access.admin_door import ADMIN_PATHS
from serve_app.access.doorkeeper import Refusal
from serve_app.gateway.http_door import path_in, refuse_socket

SOCKET_PATHS: Final = ("/v1/realtime", "/v1/live/sessions", "/v1/duplex")
UPGRADE_REQUIRED: Final = 426
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
_CODES: Final = {404: "not_found", 405: "method_not_allowed"}
_WHERE: Final = (
    f"WebSockets are at {', '.join(SOCKET_PATHS)}. A client that adds the last part by itself, "
    "such as the openai package, needs a base_url that ends in /v1."
)


def add_refusals(api: FastAPI) -> None:
    """Add them behind every other route but that of the page."""
    api.add_exception_handler(HTTPException, _refused_by_the_framework)
    api.add_exception_handler(RequestValidationError, _wrong_parameter)
    for path in SOCKET_PATHS:
        api.add_api_route(path, _open_as_socket, methods=["GET"])

    admin_routes = [
        route
        for route in api.routes
        if isinstance(route, APIRoute) and route.path.startswith(ADMIN_PATHS)
    ]

    @api.api_route(f"{ADMIN_PATHS}{{path:path}}", methods=list(METHODS))
    async def nothing_to_do(request: Request) -> JSONResponse:
        return _not_among(admin_routes, request)

    @api.websocket("/{path:path}")
    async def nothing_here(socket: WebSocket, path: str) -> None:
        await refuse_socket(socket, Refusal(404, f"There is no WebSocket at /{path}. {_WHERE}"))


async def _refused_by_the_framework(request: Request, error: Exception) -> JSONResponse:
    """Say in our shape that a path is not there, or does not take a method."""
    assert isinstance(error, HTTPException)
    code = _CODES.get(error.status_code, "bad_request")
    message = f"{request.method} {path_in(request.scope)}: {error.detail}."
    return _refused(error.status_code, code, message, error.headers)


async def _wrong_parameter(_: Request, error: Exception) -> JSONResponse:
    """Say in our shape which parameter of a URL is wrong."""
    assert isinstance(error, RequestValidationError)
    wrong = error.errors()[0]
    param = ".".join(str(part) for part in wrong["loc"][1:])
    return _refused(400, "invalid_value", f"{param}: {wrong['msg']}.", param=param)


async def _open_as_socket() -> JSONResponse:
    return _refused(
        UPGRADE_REQUIRED,
        "upgrade_required",
        "Open this address as a WebSocket; docs/wire/index.md says what it speaks.",
        {"Upgrade": "websocket", "Connection": "Upgrade"},
    )


def _not_among(routes: Sequence[APIRoute], request: Request) -> JSONResponse:
    """Answer what no operator's path takes: the path is wrong, or only the method."""
    path = path_in(request.scope) or ""
    methods = {
        method
        for route in routes
        if route.path_regex.fullmatch(path)
        for method in route.methods or ()
    }
    if methods:
        allowed = ", ".join(sorted(methods))
        message = f"{path} does not take {request.method}; it takes {allowed}."
        return _refused(405, "method_not_allowed", message, {"Allow": allowed})
    there = ", ".join(sorted({route.path for route in routes})) or "nothing"
    return _refused(404, "not_found", f"{path} is not here. Here are: {there}.")


def _refused(
    status: int,
    code: str,
    message: str,
    headers: Mapping[str, str] | None = None,
    *,
    param: str | None = None,
) -> JSONResponse:
    error = {"type": "invalid_request_error", "code": code, "message": message, "param": param}
    return JSONResponse({"error": error}, status_code=status, headers=headers)
