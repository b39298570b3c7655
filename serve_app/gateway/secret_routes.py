"""The HTTP routes about client secrets, and answers for paths of that API that are not here."""

from collections.abc import Mapping
from typing import Final

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from serve_app.access.doorkeeper import Refusal
from serve_app.clock import unix_now_s
from serve_app.gateway.gateway import Gateway
from serve_app.gateway.http_answers import error_response, unstored
from serve_app.gateway.http_body import read_body
from serve_app.gateway.http_door import path_in, refusal_response
from serve_app.gateway.secret_desk import make_secret
from serve_app.metrics.definitions import DOOR_REFUSALS
from session.errors import DuplexError, LimitError, UnsupportedOption

SECRETS_PATH: Final = "/v1/realtime/client_secrets"
MAX_BODY_BYTES: Final = 524_288
"""Instructions of full length fit in, however they are escaped."""
NOT_HERE: Final[Mapping[str, str]] = {
    "/v1/realtime/sessions": f"secrets for browsers are made by POST {SECRETS_PATH}",
    "/v1/realtime/transcription_sessions": (
        "no session only transcribes; audio.input.transcription of a realtime session, opened by "
        f"WebSocket or with POST {SECRETS_PATH}, says what was heard"
    ),
    "/v1/realtime/calls": "there is no WebRTC; open a WebSocket at /v1/realtime",
}
"""Paths that clients of that API may ask for, and what there is instead."""


def add_routes(api: FastAPI, gateway: Gateway) -> None:
    """Add the routes to the gateway's application."""

    @api.post(SECRETS_PATH)
    async def create(request: Request) -> JSONResponse:
        who = gateway.door.who(request.headers)
        if isinstance(who, Refusal):  # the key was let in a moment ago, and is gone
            return refusal_response(who)
        try:
            body = await read_body(request, MAX_BODY_BYTES)
            made = make_secret(
                body,
                who,
                quotas=gateway.quotas,
                secrets=gateway.secrets,
                model=(await gateway.directory()).descriptor,
                ids=gateway.ids,
                now_unix_s=unix_now_s(),
            )
        except DuplexError as error:
            if isinstance(error, LimitError):
                gateway.meter.count(DOOR_REFUSALS, "http", "429")
            return error_response(error)
        return unstored(made)

    async def not_here(request: Request) -> JSONResponse:
        path = path_in(request.scope) or ""
        wrong = UnsupportedOption(f"{path} is not here: {NOT_HERE[path]}", code="not_found")
        return error_response(wrong, 404)

    for path in NOT_HERE:
        api.add_api_route(path, not_here, methods=["POST"])
