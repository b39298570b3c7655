"""Reads the body of a request, which nobody has bounded or judged before."""

from collections.abc import Iterable
from typing import Final

from fastapi import Request

from serve_app.gateway.http_answers import TOO_LARGE
from session.errors import MalformedEvent
from session.realtime.json_text import parse_object

Fields = dict[str, object]
"""The members of a JSON object that is not read yet."""
LONGEST_NAME: Final = 64
"""So much of a name that is not known is repeated."""


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Return the body; raise MalformedEvent once it is too long."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise MalformedEvent(f"the body is over the limit of {max_bytes} bytes", code=TOO_LARGE)
    return bytes(body)


def fields_in(body: bytes) -> Fields:
    """Return the object that a body holds, none standing for an empty one; raise MalformedEvent."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise MalformedEvent("the body is not UTF-8", code="invalid_json") from None
    return parse_object(text) if text.strip() else {}


def refuse_unknown(fields: Iterable[str], known: tuple[str, ...], within: str = "") -> None:
    """Raise MalformedEvent for a name that is not known; `within` stands before it."""
    for name in fields:
        if name not in known:
            param = f"{within}{name[:LONGEST_NAME]}"
            there = "there is" if len(known) == 1 else "there are"
            raise MalformedEvent(
                f"{param} is not known; {there} {' and '.join(known)}",
                code="unknown_parameter",
                param=param,
            )
