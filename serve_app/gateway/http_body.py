"""Reads the body of a request, which nobody has bounded before."""

from fastapi import Request

from serve_app.gateway.http_errors import TOO_LARGE
from session.errors import MalformedEvent


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Return the body; raise MalformedEvent once it is too long."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise MalformedEvent(f"the body is over the limit of {max_bytes} bytes", code=TOO_LARGE)
    return bytes(body)
