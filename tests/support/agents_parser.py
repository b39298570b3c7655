"""The parser of `openai-agents`, fed frame by frame without a socket: the strictest client known.

What it insists on beyond the published types:

Rule 1: an event that does not validate is an error to its user, and so is any event of a type that
        is not in the union. That is why nothing of our own goes out unasked.
Rule 2: after `conversation.item.truncated` and each transcription it retrieves the item whose sound
        came last; no answer to that may be an error, also while the item is in the making.
Rule 3: it cancels on its own unless the session says `interrupt_response: true`; then two cancel.
Rule 4: it cuts at the whole millisecond above what it has received, so that must be taken.
Rule 5: a call is run when its item is done and completed; no `call_id` is used twice.
"""

import asyncio
import json
from collections.abc import Coroutine
from typing import Any, cast

from agents.realtime.model_events import RealtimeModelEvent
from agents.realtime.openai_realtime import OpenAIRealtimeWebSocketModel
from pydantic import BaseModel, ValidationError


class AgentsParser:
    """Takes frames, and keeps what it would have sent and what it found wrong."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.faults: list[str] = []
        self.told: list[RealtimeModelEvent] = []
        self._model = OpenAIRealtimeWebSocketModel()
        self._model.add_listener(cast(Any, self))
        # In place of its socket.
        vars(self._model)["_send_raw_message"] = self._send

    def hear(self, frame: str) -> None:
        """Take the next frame."""
        _run(self._model._handle_ws_event(json.loads(frame)))  # noqa: SLF001 - it has no other door

    async def on_event(self, event: RealtimeModelEvent) -> None:
        """Note what the application would learn."""
        self.told.append(event)
        if event.type == "exception":
            self.faults.append(f"{event.context}: {event.exception}")
        elif event.type == "error" and isinstance(event.error, ValidationError):
            self.faults.append(str(event.error))

    async def _send(self, event: BaseModel) -> None:
        self.sent.append(event.model_dump(exclude_unset=True))


def _run(parsing: Coroutine[Any, Any, Any]) -> None:
    """Run what never has to wait, without a loop."""
    try:
        parsing.send(None)
    except StopIteration:
        return
    parsing.close()
    raise asyncio.InvalidStateError("the parser waits for something")
