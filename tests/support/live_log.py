"""The laws of a whole conversation on `/v1/live/sessions`.

Rule 1: the session starts once, before all but a refusal, and is closed once, after all.
Rule 2: what is heard and said goes on in time: no delta begins before the one before it.
Rule 3: muted and unmuted come in turn; usage only rises.
"""

from collections.abc import Callable
from typing import Any

from tests.support.openai_types import live_faults, read_frame, sound_faults

Json = dict[str, Any]


class LiveLog:
    """Reads one socket's frames in order and notes every fault."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.events: list[Json] = []
        self._ids: set[str] = set()
        self._session: Json | None = None
        self._is_closed = False
        self._is_muted = False
        self._used_s = 0.0
        self._at_ms: dict[str, int] = {}
        self._readers: dict[str, Callable[[Json], None]] = {
            "session.started": self._started,
            "session.updated": self._session_is,
            "session.closed": self._closed,
            "session.input_audio.muted": self._muted,
            "session.input_audio.unmuted": self._muted,
            "session.output_audio.delta": self._sound,
            "session.output_transcript.delta": self._words,
            "session.input_transcript.delta": self._words,
            "session.usage.updated": self._usage,
        }

    def hear(self, frame: str) -> None:
        """Take the next frame."""
        faults = live_faults(frame)
        self.faults += faults
        if not faults:
            self._read(read_frame(frame))

    def end(self) -> None:
        """Say that the conversation is over and was not cut off."""
        self._note(self._is_closed, "a conversation without session.closed")

    def of(self, *kinds: str) -> list[Json]:
        """Return the events of these types so far."""
        return [event for event in self.events if event["type"] in kinds]

    def _read(self, event: Json) -> None:
        kind = event["type"]
        event_id = event.get("event_id")
        self._note(event_id is None or event_id not in self._ids, f"{kind}: its id came before")
        self._ids |= {event_id} if event_id else set()
        is_opening = kind in ("session.started", "error")
        self._note(self._session is not None or is_opening, f"{kind} before session.started")
        self._note(not self._is_closed, f"{kind} after session.closed")
        self.events.append(event)
        reader = self._readers.get(kind)
        if reader is not None:
            reader(event)

    def _note(self, is_right: object, fault: str) -> None:
        if not is_right:
            self.faults.append(f"event {len(self.events)}: {fault}")

    def _started(self, event: Json) -> None:
        self._note(self._session is None, "a second session.started")
        self._session_is(event)

    def _session_is(self, event: Json) -> None:
        self._note(self._session is None or self._session["id"] == event["session"]["id"], "its id")
        self._session = event["session"]

    def _closed(self, event: Json) -> None:
        self._session_is(event)
        self._usage(event)
        self._is_closed = True

    def _muted(self, event: Json) -> None:
        is_muted = event["type"] == "session.input_audio.muted"
        self._note(is_muted is not self._is_muted, f"{event['type']} twice")
        self._is_muted = is_muted

    def _usage(self, event: Json) -> None:
        seconds = event["usage"]["seconds"]
        self._note(seconds >= self._used_s, f"usage falls to {seconds} s")
        self._used_s = seconds

    def _sound(self, event: Json) -> None:
        audio = (self._session or {}).get("audio") or {}
        kind = (audio.get("format") or {}).get("type", "audio/pcm")
        for fault in sound_faults(event["delta"], is_pcm=kind == "audio/pcm"):
            self._note(False, fault)

    def _words(self, event: Json) -> None:
        kind, start_ms = event["type"], event["start_ms"]
        self._note(0 <= start_ms <= event["end_ms"], f"{kind} ends before it begins")
        self._note(start_ms >= self._at_ms.get(kind, 0), f"{kind} goes back to {start_ms} ms")
        self._note(event["delta"], f"{kind} of no length")
        self._at_ms[kind] = start_ms
