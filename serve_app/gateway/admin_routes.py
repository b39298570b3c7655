"""The operator's routes about the whole replica: draining it, and taking that back."""

from typing import Final

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from serve_app.clock import unix_now_s
from serve_app.gateway.draining import LONGEST_S
from serve_app.gateway.gateway import Gateway
from serve_app.gateway.http_answers import error_response, unstored
from serve_app.gateway.http_body import fields_in, read_body, refuse_unknown
from session.errors import DuplexError
from session.realtime.readers import number

DRAIN_PATH: Final = "/admin/drain"
WITHIN: Final = "within_s"
MAX_BODY_BYTES: Final = 4096


def add_routes(api: FastAPI, gateway: Gateway) -> None:
    """Add the routes to the gateway's application."""

    @api.get(DRAIN_PATH)
    async def look() -> JSONResponse:
        return unstored(gateway.draining.view())

    @api.post(DRAIN_PATH)
    async def drain(request: Request) -> JSONResponse:
        try:
            within_s = read_within(await read_body(request, MAX_BODY_BYTES))
        except DuplexError as error:
            return error_response(error)
        gateway.draining.begin(within_s, now_unix_s=unix_now_s())
        return unstored(gateway.draining.view())

    @api.delete(DRAIN_PATH)
    async def serve_again() -> JSONResponse:
        gateway.draining.withdraw()
        return unstored(gateway.draining.view())


def read_within(body: bytes) -> float | None:
    """Return how long a drain may take, None where the body does not say; raise MalformedEvent."""
    fields = fields_in(body)
    refuse_unknown(fields, (WITHIN,))
    within_s = fields.get(WITHIN)
    return None if within_s is None else number(0, LONGEST_S)(within_s, WITHIN)
