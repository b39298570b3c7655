"""The operator's routes about the whole replica: draining it, and taking that back."""

from typing import Final, Protocol

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from serve_app.clock import unix_now_s
from serve_app.gateway.draining import LONGEST_S, Draining
from serve_app.gateway.http_body import read_body
from serve_app.gateway.http_errors import error_response
from session.errors import DuplexError, MalformedEvent
from session.realtime.json_text import parse_object
from session.realtime.readers import number

DRAIN_PATH: Final = "/admin/drain"
WITHIN: Final = "within_s"
MAX_BODY_BYTES: Final = 4096


class AdminPlace(Protocol):
    """What the routes need of the gateway."""

    @property
    def draining(self) -> Draining:
        """The replica's drain."""
        ...


def add_routes(api: FastAPI, gateway: AdminPlace) -> None:
    """Add the routes to the gateway's application."""

    def shown() -> JSONResponse:
        return JSONResponse(gateway.draining.view(), headers={"Cache-Control": "no-store"})

    @api.get(DRAIN_PATH)
    async def look() -> JSONResponse:
        return shown()

    @api.post(DRAIN_PATH)
    async def drain(request: Request) -> JSONResponse:
        try:
            within_s = read_within(await read_body(request, MAX_BODY_BYTES))
        except DuplexError as error:
            return error_response(error)
        gateway.draining.begin(within_s, now_unix_s=unix_now_s())
        return shown()

    @api.delete(DRAIN_PATH)
    async def serve_again() -> JSONResponse:
        gateway.draining.withdraw()
        return shown()


def read_within(body: bytes) -> float | None:
    """Return how long a drain may take, None where the body does not say; raise MalformedEvent."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise MalformedEvent("the body is not UTF-8", code="invalid_json") from None
    fields = parse_object(text) if text.strip() else {}
    for name in fields:
        if name != WITHIN:
            raise MalformedEvent(
                f"{name[:64]} is not known; there is {WITHIN}",
                code="unknown_parameter",
                param=name[:64],
            )
    within_s = fields.get(WITHIN)
    return None if within_s is None else number(0, LONGEST_S)(within_s, WITHIN)
