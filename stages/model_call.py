"""One call into a model, as a task of its own, and its outcome as a value.

Rule 1: whoever asked for a unary call may give up; the model's work is not cut in the middle by
        that. Only releasing the session cancels it.
Rule 2: a fault of the plugin reaches callers as StageFailed with its type and message. The
        traceback goes to the log, once, and nowhere else.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from session.errors import DuplexError, StageFailed, StageRefused

T = TypeVar("T")

logger = logging.getLogger(__name__)


def start_call(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Run `work` whatever becomes of the caller; log a fault of the plugin when it happens."""
    task = asyncio.create_task(work)  # noqa: TID251 - held and ended by the binding it works for
    task.add_done_callback(_note_fault)
    return task


async def finish(task: asyncio.Task[T]) -> T:
    """Wait for a call and return its result, or raise the DuplexError that it ended with."""
    await asyncio.wait({task})
    return outcome(task)


def outcome(task: asyncio.Task[T]) -> T:
    """Return what a finished call returned, or raise the DuplexError that it ended with."""
    if task.cancelled():
        raise StageRefused("the call was cancelled when its session was released")
    error = task.exception()
    if error is None:
        return task.result()
    if isinstance(error, DuplexError):
        raise error
    raise StageFailed(f"the model failed: {type(error).__name__}: {error}") from error


async def cancel_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel the tasks that still run, and wait until they have ended."""
    running = {task for task in tasks if not task.done()}
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)


def _note_fault(task: asyncio.Task[Any]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, DuplexError):
        logger.error("a model call failed", exc_info=error)
