"""Answers over HTTP, and how an error looks where there is no session, also on a socket.

HTTP is spoken by clients of the published API, so there an error has the code that they know.
"""

from typing import Final

from fastapi.responses import JSONResponse
from pydantic import BaseModel

from session.errors import (
    ClientError,
    DuplexError,
    LimitError,
    QuotaExceeded,
    ServerDraining,
    StageError,
)
from session.realtime.dialects.openai_shapes import error_object

TOO_LARGE: Final = "event_too_large"


def unstored(view: BaseModel) -> JSONResponse:
    """Return what is true now or is a secret: nobody on the way is to keep it."""
    return JSONResponse(view.model_dump(mode="json"), headers={"Cache-Control": "no-store"})


def error_fields(error: DuplexError) -> dict[str, str | None]:
    """Return the members of the `error` object on a socket."""
    return {
        "type": error.wire_type,
        "code": error.wire_code,
        "message": error.message,
        "param": error.param,
    }


def error_response(error: DuplexError, status: int | None = None) -> JSONResponse:
    """Return the whole answer; without a status, the one that fits the error."""
    known = error_object(error, None)
    body = known.model_dump(include={"type", "code", "message", "param"})
    return JSONResponse(
        {"error": body}, status_code=status or http_status(error), headers=_headers(error)
    )


def _headers(error: DuplexError) -> dict[str, str] | None:
    if isinstance(error, QuotaExceeded) and error.retry_after_s is not None:
        return {"Retry-After": str(error.retry_after_s)}
    return None


def http_status(error: DuplexError) -> int:
    """Return the status of an answer that is this error."""
    match error:
        case ClientError(wire_code=code):
            return 413 if code == TOO_LARGE else 400
        case LimitError():
            return 429
        case StageError() | ServerDraining():
            return 503
        case _:
            return 500
