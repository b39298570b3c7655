"""Reads a client of the OpenAI Realtime interface.

Rule 1: the eleven standard events are read as the standard has them. Any other event that the
        duplex dialect knows is read as there; from then on its client is shown such events, too.
Rule 2: what is wrong becomes one EventRefused in its place in the order; nothing else is done.
"""

from collections.abc import Mapping
from typing import Final

from session.realtime.client_events import (
    ClientEvent,
    ConversationItemDelete,
    ConversationItemRetrieve,
    InputAudioBufferClear,
    OutputAudioBufferClear,
    ResponseCancel,
)
from session.realtime.commands import Command
from session.realtime.decode import ALIASES, CLIENT_EVENTS, Wire, decode_with
from session.realtime.item_event import ConversationItemCreate
from session.realtime.openai.client_events import OWN_EVENTS
from session.realtime.opening import ClientHabits

_SHARED: Final[tuple[type[ClientEvent], ...]] = (
    InputAudioBufferClear,
    ConversationItemCreate,
    ConversationItemRetrieve,
    ConversationItemDelete,
    ResponseCancel,
    OutputAudioBufferClear,
)
STANDARD_EVENTS: Final[Mapping[str, type[ClientEvent]]] = {
    str(model.model_fields["type"].default): model for model in (*OWN_EVENTS, *_SHARED)
}
"""The events that the standard has."""
VENDOR_EVENTS: Final[Mapping[str, type[ClientEvent]]] = {
    name: model
    for name, model in CLIENT_EVENTS.items()
    if name not in STANDARD_EVENTS and name not in ("session.resume", "session.event_ack")
}
"""Events of the duplex dialect that a client may use here, too. Sessions are not resumed."""
_NOT_RESUMED: Final = (
    "sessions are not resumed on this wire: connect with ?duplex=1, whose events docs/wire.md lists"
)
_WIRE: Final = Wire(
    {**VENDOR_EVENTS, **STANDARD_EVENTS},
    "docs/wire/openai.md",
    {
        "session.resume": _NOT_RESUMED,
        "session.event_ack": _NOT_RESUMED,
        "transcription_session.update": "no session only transcribes here: "
        "session.audio.input.transcription of session.update tells what was heard",
    },
)


class OpenAIReader:
    """Reads one socket."""

    def __init__(self, habits: ClientHabits) -> None:
        self._habits = habits

    def decode(self, text: str, *, max_bytes: int) -> Command:
        """Return what `text` asks for, or EventRefused."""
        name, command = decode_with(_WIRE, text, max_bytes=max_bytes)
        if name is not None and ALIASES.get(name, name) not in STANDARD_EVENTS:
            self._habits.uses_vendor_events = True
        if name == "output_audio_buffer.clear":
            self._habits.clears_output = True
        return command
