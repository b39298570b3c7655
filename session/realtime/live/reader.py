"""Turns a live client's text into a command. Total: whatever comes, exactly one command results.

Rule 1: before session.start nothing else is taken, and after it no second one.
Rule 2: what is wrong becomes one EventRefused in its place in the order, with the client's
        `event_id` where that can be read; nothing else of the event is done.
Rule 3: while the input is muted, audio becomes silence of the same length here, before anybody
        hears it: the session's timeline runs on.
"""

from collections.abc import Mapping
from typing import Final, TypeVar

from pydantic import ValidationError

from session.config import AudioEncoding, AudioFormat
from session.errors import ClientError, IllegalNow, MalformedEvent, UnsupportedOption
from session.realtime.commands import AudioReceived, Command
from session.realtime.decode import Wire, client_event_id, refuse_oversize, unknown_event
from session.realtime.field_faults import first_fault
from session.realtime.json_text import parse_object, utf8_size
from session.realtime.live.client_events import (
    COMMANDS,
    REFUSAL_CODES,
    REFUSALS,
    ContextAppend,
    InputAudioAppend,
    LiveEvent,
    SessionStart,
    SessionUpdate,
)
from session.realtime.opening import ClientHabits
from session.realtime.readers import base64_bytes
from session.stimuli import EventRefused, SessionConfigured
from session.stream_stimuli import InputMuteSet

_APPEND: Final = "session.input_audio.append"
EventT = TypeVar("EventT", bound=LiveEvent)
_SILENCE: Final = {
    AudioEncoding.PCM16: b"\x00",
    AudioEncoding.G711_ULAW: b"\xff",
    AudioEncoding.G711_ALAW: b"\xd5",
}
CODES: Final[Mapping[str, str]] = {
    "extra_forbidden": "unknown_parameter",
    "missing": "missing_required_parameter",
    "string_type": "invalid_type",
    "int_type": "invalid_type",
    "bool_type": "invalid_type",
    "list_type": "invalid_type",
    "model_type": "invalid_type",
    "string_too_long": "string_above_max_length",
    "too_long": "array_above_max_length",
}
"""Codes of field errors by pydantic's name for them; every other one is invalid_value."""

_WIRE: Final = Wire(
    {},
    "docs/wire/live.md",
    {
        "session.resume": "sessions are not resumed on this wire: use /v1/realtime?duplex=1, whose "
        "events docs/wire.md lists",
        "input_audio_buffer.append": f"audio comes as {_APPEND} here",
        "conversation.item.create": "session.instructions.append tells the model something here",
    },
)
_FIXED: Final = "can not change during a session: say it in session.start"
_HINTS: Final[Mapping[tuple[type[LiveEvent], str, str], str]] = {
    (SessionUpdate, "extra_forbidden", "session.instructions"): (
        "can not change by session.update: use session.instructions.append"
    ),
    (SessionUpdate, "extra_forbidden", "session.audio"): _FIXED,
    (SessionUpdate, "extra_forbidden", "session.model"): _FIXED,
    (SessionUpdate, "extra_forbidden", "session.input"): _FIXED,
    (SessionStart, "extra_forbidden", "session.voice"): (
        "is not known here: use session.audio.output.voice"
    ),
    (ContextAppend, "missing", "delegation_id"): "is missing: it must be there, and may be null",
}
"""What else to say about a fault of an event's field."""


class LiveReader:
    """Reads one socket."""

    def __init__(self, habits: ClientHabits) -> None:
        del habits  # nobody reads them on this wire: it has no events of our own
        self._format: AudioFormat | None = None
        """None until the session has been started."""
        self._is_muted = False

    def decode(self, text: str, *, max_bytes: int) -> Command:
        """Return what `text` asks for, or EventRefused."""
        size = utf8_size(text)
        if size > max_bytes:
            return refuse_oversize(size, max_bytes)
        try:
            fields = parse_object(text)
        except MalformedEvent as error:
            return EventRefused(error)
        try:
            return self._read(fields)
        except ClientError as error:
            return EventRefused(error, client_event_id(fields))

    def _read(self, fields: dict[str, object]) -> Command:
        name = fields.get("type")
        if name == "session.start":
            return self._start(fields)
        if not isinstance(name, str):
            raise unknown_event(None, _WIRE)
        if name != _APPEND and name not in COMMANDS and name not in REFUSAL_CODES:
            raise unknown_event(name, _WIRE)
        if self._format is None:
            raise IllegalNow(
                f"{name} came before session.start, which must be the first event",
                code="session_not_started",
            )
        if name == _APPEND:
            return self._append(_validated(InputAudioAppend, fields), self._format)
        if name in REFUSAL_CODES:
            message = REFUSALS[REFUSAL_CODES[name]]
            raise UnsupportedOption(message, code=REFUSAL_CODES[name], param="type")
        command = _validated(COMMANDS[name], fields).to_command()
        if isinstance(command, InputMuteSet):
            self._is_muted = command.is_muted
        return command

    def _start(self, fields: dict[str, object]) -> Command:
        if self._format is not None:
            raise IllegalNow("the session has been started already", code="session_already_started")
        event = _validated(SessionStart, fields)
        patch = event.session.read_patch()
        self._format = event.session.audio_format
        return SessionConfigured(patch, event.event_id)

    def _append(self, event: InputAudioAppend, audio_format: AudioFormat) -> Command:
        sound = base64_bytes(event.audio, "audio")
        if self._is_muted:
            sound = _SILENCE[audio_format.encoding] * len(sound)
        return AudioReceived(
            data=sound, format=None, wire_bytes=len(event.audio), event_id=event.event_id
        )


def _validated(model: type[EventT], fields: dict[str, object]) -> EventT:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        fault = first_fault(error)
        hint = _HINTS.get((model, fault.kind, fault.param))
        if hint is not None:
            fault = fault._replace(message=f"{fault.param} {hint}")
        raise fault.error(CODES.get(fault.kind, "invalid_value")) from None
