"""`GET /metrics`: what all processes of the service have counted, on one page."""

import asyncio
from typing import Final

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response

from serve_app.gateway.http_answers import error_response
from serve_app.metrics.exporters import ReadExporters
from serve_app.metrics.exposition import merged
from session.errors import StageError

METRICS_PATH: Final = "/metrics"
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def add_route(api: FastAPI, read: ReadExporters) -> None:
    """Add the page to the gateway's application."""
    reading = asyncio.Lock()  # one after the other: a page costs some tens of milliseconds

    @api.get(METRICS_PATH, response_model=None)
    async def metrics(all: int = 0) -> Response | JSONResponse:  # noqa: A002 - the parameter's name
        async with reading:
            try:
                pages = await read()
            except StageError as error:
                return error_response(error)
            page = await asyncio.to_thread(merged, pages, with_vllm=bool(all))
        return Response(page, media_type=CONTENT_TYPE)
