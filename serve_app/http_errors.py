"""How an error looks in an HTTP answer: the object of a wire's `error` event, under a status."""

from typing import Final

from fastapi.responses import JSONResponse

from session.errors import ClientError, DuplexError, LimitError, StageError

TOO_LARGE: Final = "event_too_large"


def error_fields(error: DuplexError) -> dict[str, str | None]:
    """Return the members of the `error` object."""
    return {
        "type": error.wire_type,
        "code": error.wire_code,
        "message": error.message,
        "param": error.param,
    }


def error_response(error: DuplexError, status: int | None = None) -> JSONResponse:
    """Return the whole answer; without a status, the one that fits the error."""
    return JSONResponse({"error": error_fields(error)}, status_code=status or _status(error))


def _status(error: DuplexError) -> int:
    match error:
        case ClientError(wire_code=code):
            return 413 if code == TOO_LARGE else 400
        case LimitError():
            return 429
        case StageError():
            return 503
        case _:
            return 500
