"""Short ways to send a client event, and to read what came of it."""

import json

from session.realtime.commands import Command
from session.realtime.decode import decode
from session.stimuli import EventRefused

MAX_BYTES = 15_728_640


def sent(event_type: str, **fields: object) -> Command:
    """Decode an event of this type with these fields."""
    return decode(json.dumps({"type": event_type, **fields}), max_bytes=MAX_BYTES)


def refused(command: Command) -> tuple[str, str | None]:
    """Return code and param of a refusal; fail if it is none."""
    assert isinstance(command, EventRefused), command
    assert command.error.message
    return command.error.wire_code, command.error.param
