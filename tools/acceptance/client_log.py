"""Everything that passed between the client and the service, with the time of each event.

Rule 1: a line is written when its event passes, so that a run that breaks off leaves its log.
Rule 2: audio is counted, not written; the replies are WAV files beside the log.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TextIO

from clients.events import AudioDelta, ServerEvent

SENT: Final = "sent"
RECEIVED: Final = "received"
NOTE: Final = "note"


@dataclass(frozen=True, slots=True)
class Line:
    """One event."""

    at_s: float
    """Seconds since the log was opened, on the client's monotonic clock."""
    direction: str
    event: Mapping[str, object]
    audio: bytes = field(default=b"", repr=False)

    @property
    def kind(self) -> str:
        """The event's type."""
        return str(self.event.get("type", ""))

    @property
    def response_id(self) -> str:
        """The response that the event names; empty for none."""
        inner = self.event.get("event")
        body = inner if isinstance(inner, Mapping) else self.event
        named = body.get("response_id")
        response = body.get("response")
        if named is None and isinstance(response, Mapping):
            named = response.get("id")
        return str(named or "")


class ClientLog:
    """Lines in memory and in a file."""

    def __init__(self, file: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._clock = clock
        self._began_s = clock()
        self.lines: list[Line] = []

    def sent(self, event: Mapping[str, object], audio: bytes = b"") -> None:
        """Note what the client sends."""
        self._add(Line(self._now(), SENT, event, audio))

    def received(self, event: ServerEvent) -> None:
        """Note what the service sent; an observer for `DuplexClient`."""
        audio = event.audio if isinstance(event, AudioDelta) else b""
        self._add(Line(event.received_s - self._began_s, RECEIVED, event.raw, audio))

    def note(self, what: str, **details: object) -> None:
        """Note something of the run itself."""
        self._add(Line(self._now(), NOTE, {"type": what, **details}))

    def _now(self) -> float:
        return self._clock() - self._began_s

    def _add(self, line: Line) -> None:
        self.lines.append(line)
        written = {
            "at_s": round(line.at_s, 4),
            "direction": line.direction,
            "audio_bytes": len(line.audio),
            "event": line.event,
        }
        self._file.write(json.dumps(written, ensure_ascii=False) + "\n")
        self._file.flush()
