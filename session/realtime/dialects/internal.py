"""The kernel's own events on the wire: `/v1/duplex`, for debugging and for tests.

Each event becomes one JSON object with the name below and the fields of its class in
`session/events.py`, `session/socket_events.py` or `session/stream_events.py`, as they are: audio is
24 kHz PCM16 in base64, enums are their values. Nothing is merged, split or translated, and nothing
is left out but the recording of a voice (`ref_audio`), which the client has and which may be
megabytes.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, Final

from pydantic import ConfigDict, TypeAdapter

from session import events as kernel
from session import item_events as items
from session import socket_events, stream_events
from session.realtime.dialects.shapes import error_object
from session.snapshot import SessionSnapshot

NAMES: Final[dict[type[kernel.Event], str]] = {
    kernel.SessionCreated: "session.created",
    kernel.SessionUpdated: "session.updated",
    kernel.SessionClosed: "session.closed",
    kernel.SessionExpired: "session.expired",
    socket_events.SessionResumed: "session.resumed",
    socket_events.SessionReplaced: "session.replaced",
    socket_events.ResyncRequired: "session.resync_required",
    socket_events.SessionExpiring: "session.expiring",
    kernel.HeartbeatAnswered: "session.heartbeat_ack",
    kernel.UserSpeechStarted: "input.speech_started",
    kernel.UserSpeechStopped: "input.speech_stopped",
    kernel.InputItemCommitted: "input.committed",
    kernel.InputBufferCleared: "input.cleared",
    kernel.InputTimedOut: "input.timed_out",
    items.InputTranscribed: "input.transcribed",
    items.ItemAdded: "item.added",
    items.ItemDone: "item.done",
    items.ItemShown: "item.retrieved",
    items.ItemRemoved: "item.deleted",
    items.ItemCut: "item.truncated",
    kernel.ResponseStarted: "response.created",
    kernel.AnswerItemOpened: "response.item_opened",
    kernel.FunctionCalled: "function_call.done",
    kernel.SpeakDecided: "response.speak",
    kernel.SpeechDelta: "response.output_audio.delta",
    kernel.ResponseFinished: "response.done",
    kernel.ListenDecided: "response.listen",
    kernel.OutputBufferCleared: "audio.cleared",
    kernel.PlaybackAdvanced: "playback.acknowledged",
    kernel.OverlapDecided: "overlap.decision",
    kernel.TurnMoved: "turn.event",
    stream_events.InputCounted: "input.counted",
    stream_events.ContextAccepted: "context.accepted",
    stream_events.InputMuteChanged: "input.mute_changed",
    kernel.ErrorRaised: "error",
}
"""What each event of the kernel is called."""

_WRITER: Final = TypeAdapter(dict[str, Any], config=ConfigDict(ser_json_bytes="base64"))
_PLAIN: Final = (
    kernel.SessionCreated,
    socket_events.SessionResumed,
    socket_events.SessionReplaced,
    socket_events.ResyncRequired,
)


@dataclass(frozen=True, slots=True)
class InternalEvent:
    """One kernel event, ready to be written."""

    event: kernel.Event

    @property
    def is_journaled(self) -> bool:
        """As in every dialect: what concerns the socket alone is not."""
        return not isinstance(self.event, _PLAIN)

    def to_text(self, event_id: str, server_event_seq: int | None = None) -> str:
        """Return the JSON text of the frame."""
        written: dict[str, Any] = {"type": NAMES[type(self.event)], "event_id": event_id}
        if server_event_seq is not None:
            written["server_event_seq"] = server_event_seq
        for field in fields(self.event):
            written[field.name] = _shown(getattr(self.event, field.name))
        if isinstance(self.event, kernel.ErrorRaised):
            # An `event_id` in the event is the client's; on the wire the name is the server's.
            written["error"] = error_object(self.event.error, self.event.event_id)
            written["event_id"] = event_id
        return _WRITER.dump_json(written).decode()


def _shown(value: object) -> object:
    if not isinstance(value, SessionSnapshot):
        return value
    return replace(value, config=replace(value.config, ref_audio=b""))


class InternalProjector:
    """Writes each event as it is."""

    def project(self, event: kernel.Event) -> list[InternalEvent]:
        """Return the event."""
        return [InternalEvent(event)]
