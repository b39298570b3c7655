"""What Ray and Serve raise, in terms of a stage: the one place that knows both trees."""

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ray.exceptions import (
    GetTimeoutError,
    ObjectLostError,
    OwnerDiedError,
    RayActorError,
    RayError,
    RayTaskError,
    TaskCancelledError,
)
from ray.serve.exceptions import RayServeException

from session.errors import (
    DuplexError,
    StageFailed,
    StageRefused,
    StageTimeout,
    StageUnavailable,
)


@contextmanager
def stage_errors(stage: str) -> Iterator[None]:
    """Turn whatever a call to `stage` raises into a DuplexError."""
    try:
        yield
    except (RayError, RayServeException, TimeoutError) as error:
        raise as_duplex_error(error, stage) from error


def let_go(response: Any) -> None:
    """Cancel a call to a deployment, whose answer nobody wants any more.

    One that never reached a replica raises at that what it failed of; there is nothing to let go.
    """
    with contextlib.suppress(RayError, RayServeException):
        response.cancel()


def as_duplex_error(error: Exception, stage: str) -> DuplexError:
    """Return the DuplexError for an exception of Ray or Serve."""
    match error:
        case RayTaskError(cause=DuplexError() as cause):
            return cause
        # Before RayTaskError: an actor that waited for a dead one reports it as its own failure.
        case RayActorError():
            return StageUnavailable(f"{stage} is gone")
        case TaskCancelledError():
            return StageRefused(f"the call to {stage} was cancelled")
        case ObjectLostError() | OwnerDiedError():
            return StageFailed(f"what {stage} was to work on is lost")
        case GetTimeoutError() | TimeoutError():
            return StageTimeout(f"{stage} did not answer in time")
        case RayTaskError(cause=cause):
            return StageFailed(f"{stage} failed: {type(cause).__name__}: {cause}")
        case _:
            return StageUnavailable(f"{stage} can not be reached: {type(error).__name__}")
