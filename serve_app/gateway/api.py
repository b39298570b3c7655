"""The routes of the service."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from fastapi import FastAPI, WebSocket
from fastapi.responses import JSONResponse
from starlette.staticfiles import StaticFiles

from serve_app.dialects import INTERNAL, LIVE
from serve_app.gateway.admin_routes import add_routes as add_admin_routes
from serve_app.gateway.gateway import Gateway
from serve_app.gateway.http_answers import error_response
from serve_app.gateway.http_door import KEY_PATHS, HttpDoor
from serve_app.gateway.metrics_route import METRICS_PATH
from serve_app.gateway.metrics_route import add_route as add_metrics_route
from serve_app.gateway.secret_routes import add_routes as add_secret_routes
from serve_app.gateway.socket_query import realtime_kit
from serve_app.gateway.story_routes import add_routes as add_story_routes
from serve_app.gateway.wrong_doors import add_refusals
from session.errors import StageError

WEB_FOLDER: Final = Path(__file__).parents[1] / "web"


def build_api(gateway: Gateway) -> FastAPI:
    """Return the gateway's ASGI application."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        gateway.watch.start()
        yield
        await gateway.close()
        gateway.watch.stop()

    # No generated pages: docs/wire.md has the contract, which OpenAPI can not express.
    api = FastAPI(lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None)
    key_paths = KEY_PATHS if gateway.settings.metrics_public else (*KEY_PATHS, METRICS_PATH)
    api.add_middleware(
        HttpDoor,
        door=gateway.door,
        admin=gateway.admin,
        refused=gateway.refused,
        key_paths=key_paths,
    )
    _add_routes(api, gateway)
    add_secret_routes(api, gateway)
    add_story_routes(api, gateway)
    add_admin_routes(api, gateway)
    if gateway.read_exporters is not None:
        add_metrics_route(api, gateway.read_exporters)
    add_refusals(api)
    # Last, because a mount at "/" takes every path that no route before it has taken.
    if WEB_FOLDER.is_dir():
        api.mount("/", StaticFiles(directory=WEB_FOLDER, html=True))
    return api


def _add_routes(api: FastAPI, gateway: Gateway) -> None:
    @api.websocket("/v1/realtime")
    async def realtime(socket: WebSocket) -> None:
        await gateway.serve_socket(socket, realtime_kit)

    @api.websocket("/v1/duplex")
    async def duplex(socket: WebSocket) -> None:
        await gateway.serve_socket(socket, lambda params, headers: INTERNAL)

    @api.websocket("/v1/live/sessions")
    async def live_session(socket: WebSocket) -> None:
        await gateway.serve_socket(socket, lambda params, headers: LIVE)

    @api.get("/health/live")
    async def live() -> dict[str, str]:
        return {"status": "ok"}

    @api.get("/health")
    async def health() -> JSONResponse:
        stages = await gateway.stage_health()
        is_ready = all(answer == "ok" for answer in stages.values())
        is_draining = gateway.sessions.is_draining
        body = {
            "status": "draining" if is_draining else "ok" if is_ready else "unavailable",
            "stages": stages,
            "sessions": len(gateway.sessions),
        }
        return JSONResponse(body, status_code=200 if is_ready and not is_draining else 503)

    @api.get("/v1/models")
    async def models() -> JSONResponse:
        try:
            descriptor = (await gateway.directory()).descriptor
        except StageError as error:
            return error_response(error)
        model = {
            "id": descriptor.model_id,
            "object": "model",
            "created": 0,
            "owned_by": descriptor.name,
            "description": descriptor.description,
        }
        return JSONResponse({"object": "list", "data": [model]})

    if gateway.settings.debug:

        @api.get("/debug/timings")
        async def timings() -> dict[str, dict[str, float]]:
            return gateway.timings.summary()
