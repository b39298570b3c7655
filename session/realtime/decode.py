"""Turns a client's text into a command. Total: whatever comes, exactly one command results.

Rule 1: what is wrong becomes one EventRefused in its place in the order, with the client's
        `event_id` where that can be read; nothing else of the event is done.
Rule 2: aliases are gone after this module.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from pydantic import ValidationError

from session.errors import ClientError, MalformedEvent
from session.realtime import client_events
from session.realtime.append_event import InputAudioBufferAppend
from session.realtime.commands import Command
from session.realtime.field_faults import first_fault
from session.realtime.item_event import ConversationItemCreate
from session.realtime.json_text import parse_object, utf8_size
from session.stimuli import EventRefused

ALIASES: Final[Mapping[str, str]] = {
    "input_text.append": "input.text.append",
    "push_text": "input.text.append",
    "input.audio.append": "input_audio_buffer.append",
    "push_chunk": "input_audio_buffer.append",
    "signal_turn": "turn.signal",
    "audio.playback_ack": "playback.ack",
    "close_session": "session.close",
    "close": "session.close",
}
WAV_BY_DEFAULT: Final = frozenset({"input.audio.append", "push_chunk"})
"""Aliases whose audio is WAV unless it says otherwise."""

ClientEvents = Mapping[str, type[client_events.ClientEvent]]
"""The events of a dialect by their names."""

CLIENT_EVENTS: Final[ClientEvents] = {
    "session.update": client_events.SessionUpdate,
    "session.resume": client_events.SessionResume,
    "session.event_ack": client_events.SessionEventAck,
    "session.heartbeat": client_events.SessionHeartbeat,
    "session.close": client_events.SessionClose,
    "input_audio_buffer.append": InputAudioBufferAppend,
    "input_audio_buffer.commit": client_events.InputAudioBufferCommit,
    "input.commit": client_events.InputCommit,
    "input_audio_buffer.clear": client_events.InputAudioBufferClear,
    "input.cancel": client_events.InputCancel,
    "input.text.append": client_events.InputTextAppend,
    "conversation.item.create": ConversationItemCreate,
    "conversation.item.retrieve": client_events.ConversationItemRetrieve,
    "conversation.item.delete": client_events.ConversationItemDelete,
    "conversation.item.truncate": client_events.ConversationItemTruncate,
    "response.create": client_events.ResponseCreate,
    "response.cancel": client_events.ResponseCancel,
    "output_audio_buffer.clear": client_events.OutputAudioBufferClear,
    "barge_in": client_events.BargeIn,
    "turn.signal": client_events.TurnSignal,
    "playback.ack": client_events.PlaybackAck,
}
SIGNALLED_COMMANDS: Final = frozenset(
    {
        "input.cancel",
        "barge_in",
        "response.cancel",
        "session.update",
        "conversation.item.create",
        "conversation.item.retrieve",
        "conversation.item.delete",
        "conversation.item.truncate",
    }
)
"""Commands that may also come as the `event` of a turn.signal, their fields in its `payload`."""


class Wire(NamedTuple):
    """The events of a dialect."""

    events: ClientEvents
    page: str
    """Where they are listed."""
    elsewhere: Mapping[str, str] = MappingProxyType({})
    """Events that a client may look for here, and what there is instead."""


_DUPLEX: Final = Wire(CLIENT_EVENTS, "docs/wire.md")


def decode(text: str, *, max_bytes: int) -> Command:
    """Return what `text` asks for in the duplex dialect, or EventRefused."""
    return decode_with(_DUPLEX, text, max_bytes=max_bytes)[1]


def decode_with(wire: Wire, text: str, *, max_bytes: int) -> tuple[str | None, Command]:
    """Return the name of a known event, and what `text` asks for on `wire`, or EventRefused.

    The name is as the client said it, also where the rest of the event is wrong; None for what is
    no event of these.
    """
    size = utf8_size(text)
    if size > max_bytes:
        return None, refuse_oversize(size, max_bytes)
    try:
        fields = parse_object(text)
    except MalformedEvent as error:
        return None, EventRefused(error)
    name = fields.get("type")
    is_known = isinstance(name, str) and ALIASES.get(name, name) in wire.events
    known = str(name) if is_known else None
    try:
        return known, _read(wire, fields)
    except ClientError as error:
        return known, EventRefused(error, client_event_id(fields))


def refuse_binary() -> EventRefused:
    """Return the refusal of a binary frame."""
    return EventRefused(
        MalformedEvent("binary frames are not used: send each event as one JSON text frame")
    )


def refuse_oversize(size: int, max_bytes: int) -> EventRefused:
    """Return the refusal of a frame of `size` bytes."""
    return EventRefused(
        MalformedEvent(
            f"an event of {size} bytes is over the limit of {max_bytes}: send audio in smaller "
            "pieces",
            code="event_too_large",
        )
    )


def _read(wire: Wire, fields: dict[str, object]) -> Command:
    name = fields.get("type")
    if not isinstance(name, str):
        raise unknown_event(None, wire)
    canonical = ALIASES.get(name, name)
    if name in WAV_BY_DEFAULT and not fields.keys() & {"format", "input_audio_format"}:
        fields = {**fields, "format": "wav"}
    if canonical == "turn.signal":
        canonical, fields = _unwrapped(fields)
    model = wire.events.get(canonical)
    if model is None:
        raise unknown_event(canonical, wire)
    if fields.get("type") != canonical:
        fields = {**fields, "type": canonical}
    try:
        event = model.model_validate(fields)
    except ValidationError as error:
        raise first_fault(error).error(model.refusal_code or None) from None
    return event.to_command()


def _unwrapped(fields: dict[str, object]) -> tuple[str, dict[str, object]]:
    """Return the command inside a turn.signal; the signal itself where it holds none."""
    signal = fields.get("event")
    if not isinstance(signal, str) or signal not in SIGNALLED_COMMANDS:
        return "turn.signal", fields
    payload = fields.get("payload")
    if not isinstance(payload, dict | None):
        raise MalformedEvent("payload must be an object", param="payload")
    return signal, {**(payload or {}), "type": signal, "event_id": fields.get("event_id")}


def client_event_id(fields: dict[str, object]) -> str | None:
    """Return the client's name for an event that could not be read, where it has a fit one."""
    event_id = fields.get("event_id")
    is_fit = isinstance(event_id, str) and len(event_id) <= client_events.MAX_ID_CHARS
    return event_id if is_fit else None  # type: ignore[return-value]  # is_fit


def unknown_event(name: str | None, wire: Wire) -> MalformedEvent:
    """Return the error for an event that the wire does not have; None: it has no name."""
    if name is None:
        message = f"an event needs a `type`; {wire.page} lists the events"
    else:
        hint = wire.elsewhere.get(name, f"{wire.page} lists the events")
        message = f"unknown event type {name[:64]!r}; {hint}"
    return MalformedEvent(message, code="unknown_event", param="type")
