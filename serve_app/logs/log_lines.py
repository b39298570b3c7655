"""The one way to write a log line about a session, or about a socket that has none.

Rule 1: a line is a fixed sentence and facts; the facts have fixed names and are never content: no
        sound, text, instructions, arguments or metadata, no key, no token.
Rule 2: the words of a client and of a model's exception are content, so of an error only its code
        and name are written, and its message where that is our own.
"""

import dataclasses
import logging
from dataclasses import dataclass
from typing import Final

from serve_app.metrics.label_values import error_name
from session.errors import ClientError, DuplexError, StageFailed
from session.fence import Fence

QUOTING: Final = (ClientError, StageFailed)
"""Errors whose message may repeat what a client sent or a model was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a line says besides its sentence; what is None is left out."""

    dialect: str | None = None
    principal: str | None = None
    """Name of the client's key; never the key."""
    stimulus: str | None = None
    effects: tuple[str, ...] | None = None
    outcomes: tuple[str, ...] | None = None
    response_id: str | None = None
    stage: str | None = None
    stage0_replica: str | None = None
    stage1_replica: str | None = None
    error: str | None = None
    """Class of the error, as in the metrics."""
    error_code: str | None = None
    error_words: str | None = None
    reason: str | None = None
    status: int | None = None
    duration_s: float | None = None
    units: int | None = None
    answers: int | None = None
    count: int | None = None
    """How many such lines this one stands for."""
    story: tuple[str, ...] | None = None


NO_FACTS: Final = Facts()
FENCE_FIELDS: Final = ("session", "incarnation", "epoch", "turn")
FACT_FIELDS: Final = tuple(field.name for field in dataclasses.fields(Facts))
FIELDS: Final = (*FENCE_FIELDS, *FACT_FIELDS)
"""Names of all that a line can have besides time, level, logger and message."""


def say(
    logger: logging.Logger,
    level: int,
    sentence: str,
    fence: Fence | None = None,
    facts: Facts = NO_FACTS,
    *,
    error: BaseException | None = None,
) -> None:
    """Write one line; with `error`, where it came from, but not its message."""
    if not logger.isEnabledFor(level):
        return
    named: dict[str, object] = {}
    if fence is not None:
        named = {
            "session": fence.session_id,
            "incarnation": fence.incarnation,
            "epoch": fence.epoch,
            "turn": fence.turn,
        }
    named |= {name: value for name in FACT_FIELDS if (value := getattr(facts, name)) is not None}
    logger.log(level, sentence, extra=named, exc_info=error, stacklevel=2)


def trouble(error: DuplexError, *, stage: str | None = None) -> Facts:
    """Return the facts of an error."""
    words = None if isinstance(error, QUOTING) else error.message
    return Facts(
        stage=stage,
        error=error_name(type(error)),
        error_code=error.wire_code,
        error_words=words,
    )
