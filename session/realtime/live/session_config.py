"""The session object of `session.start` and `session.update`, and the settings it stands for.

Rule 1: the wire is strict. A field that is not in these models is refused by its path.
Rule 2: what this server can not do is refused by name, so that nobody believes it is done.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from session.config import (
    AudioEncoding,
    AudioFormat,
    ConfigPatch,
    PlaybackCommitPolicy,
    SessionConfig,
    TurnDetection,
    default_config,
    overlap_policy_for,
)
from session.context import ContextMessage
from session.echoed import EchoedPatch
from session.errors import MalformedEvent, UnsupportedOption
from session.model_profile import ModelProfile
from session.realtime.readers import MAX_NAME_CHARS, MAX_TEXT_CHARS, voice
from session.realtime.session_fields import MAX_ECHO_BYTES

MAX_MESSAGES: Final = 128
"""Messages of `session.input`."""
DEFAULT_FORMAT: Final = AudioFormat(AudioEncoding.PCM16, 24_000)
ENCODINGS: Final = {
    "audio/pcm": AudioEncoding.PCM16,
    "audio/pcmu": AudioEncoding.G711_ULAW,
    "audio/pcma": AudioEncoding.G711_ALAW,
}
_RATES_HZ: Final = {
    "audio/pcm": (16_000, 24_000),
    "audio/pcmu": (8_000,),
    "audio/pcma": (8_000,),
}
_ECHOED: Final = frozenset({"delegation", "input", "safety_identifier", "store", "triggers"})
"""Settings that change nothing here, or nothing that is kept, and are said back."""


class Strict(BaseModel):
    """Base of what a client sends on this wire."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Format(Strict):
    """Encoding and rate of the audio, the same both ways."""

    type: Literal["audio/pcm", "audio/pcmu", "audio/pcma"]
    rate: int

    def read(self) -> AudioFormat:
        """Return the format; raise MalformedEvent for a rate that it does not have."""
        rates_hz = _RATES_HZ[self.type]
        if self.rate not in rates_hz:
            offered = " or ".join(map(str, rates_hz))
            raise MalformedEvent(
                f"{self.type} has a rate of {offered} Hz",
                code="invalid_value",
                param="session.audio.format.rate",
            )
        return AudioFormat(ENCODINGS[self.type], self.rate)


class Output(Strict):
    """The voice that answers are spoken with."""

    voice: object = None


class Audio(Strict):
    """Startup audio settings."""

    format: Format | None = None
    output: Output | None = None


class Delegation(Strict):
    """Who does the tasks that the model hands on. It hands none on, so only `client` is true."""

    type: Literal["client", "responses", "decisions"]
    acknowledgement_delay_ms: Annotated[int, Field(ge=0)] | None = None
    responses: object = None
    decisions: object = None

    def check(self) -> None:
        """Raise UnsupportedOption for a backend that this server does not have."""
        if self.type != "client":
            raise UnsupportedOption(
                f"this server delegates nothing to {self.type}; leave delegation out",
                code="unsupported_delegation",
                param="session.delegation.type",
            )
        for name in ("responses", "decisions"):
            if name in self.model_fields_set:
                raise MalformedEvent(
                    f"client delegation has no {name}",
                    code="unknown_parameter",
                    param=f"session.delegation.{name}",
                )


class TextPart(Strict):
    """The text of a message."""

    type: Literal["input_text", "output_text", "text"] | None = None
    text: Annotated[str, Field(max_length=MAX_TEXT_CHARS)]


class InitialItem(Strict):
    """A message from before the session."""

    role: Literal["developer", "user", "assistant"]
    content: Annotated[list[TextPart], Field(min_length=1, max_length=1)]
    id: Annotated[str, Field(max_length=MAX_NAME_CHARS)] | None = None
    status: Literal["incomplete", "completed"] | None = None
    type: Literal["message"] | None = None

    def read(self, place: int) -> ContextMessage:
        """Return the message; raise MalformedEvent for a part that its author can not have."""
        part, is_assistant = self.content[0], self.role == "assistant"
        fits = part.type is None or is_assistant == (part.type != "input_text")
        if not fits:
            raise MalformedEvent(
                f"a message of the {self.role} has no part of type {part.type}",
                code="invalid_value",
                param=f"session.input.{place}.content.0.type",
            )
        return ContextMessage("system" if self.role == "developer" else self.role, part.text)


class UpdateConfig(Strict):
    """What may change during a session: nothing that does anything here."""

    delegation: Delegation | None = None
    triggers: list[object] | None = None

    def read_patch(self) -> ConfigPatch:
        """Return the settings as a patch; raise ClientError for what this server has not."""
        return ConfigPatch(tuple(self.read_changes()))

    def read_changes(self) -> Iterator[tuple[str, object]]:
        """Yield the changes by setting."""
        if self.delegation is not None:
            self.delegation.check()
        if self.triggers:
            raise _unsupported("decisions are not evaluated here", "session.triggers")
        echoed = tuple(self._echoed())
        if echoed:
            yield "echoed", EchoedPatch(echoed)

    def _echoed(self) -> Iterator[tuple[str, str]]:
        given = self.model_dump(exclude_unset=True, include=set(_ECHOED))
        for name, value in given.items():
            as_json = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
            if value is not None and len(as_json.encode()) <= MAX_ECHO_BYTES:
                yield name, as_json


class StartConfig(UpdateConfig):
    """The settings that a session begins with."""

    model: Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]
    """Which model runs is the deployment's business; the answer says which one it is."""
    audio: Audio | None = None
    client: object = None
    input: Annotated[list[InitialItem], Field(max_length=MAX_MESSAGES)] | None = None
    instructions: Annotated[str, Field(max_length=MAX_TEXT_CHARS)] | None = None
    safety_identifier: Annotated[str, Field(max_length=MAX_NAME_CHARS)] | None = None
    store: bool | None = None

    @property
    def audio_format(self) -> AudioFormat:
        """The format of the audio both ways; raises MalformedEvent."""
        asked = self.audio.format if self.audio is not None else None
        return DEFAULT_FORMAT if asked is None else asked.read()

    def read_changes(self) -> Iterator[tuple[str, object]]:
        """Yield the changes by setting."""
        yield from super().read_changes()
        if self.client is not None:
            raise _unsupported("a WebSocket has no data channel to restrict", "session.client")
        if self.store:
            raise _unsupported("sessions are not stored here", "session.store")
        yield "input_format", self.audio_format
        yield "output_format", self.audio_format
        if self.audio is not None and self.audio.output is not None:
            asked = self.audio.output.voice
            if asked is not None:
                yield "voice", voice(asked, "session.audio.output.voice")
        if self.instructions is not None and self.instructions.strip():
            yield "instructions", self.instructions
        if self.input:
            messages = tuple(item.read(place) for place, item in enumerate(self.input))
            yield "opening_messages", messages


def live_defaults(model_id: str, profile: ModelProfile) -> SessionConfig:
    """Return the settings of a session whose client has named none: the model speaks by itself."""
    detection = TurnDetection()
    return replace(
        default_config(model_id, profile),
        output_modalities=("audio",),
        input_format=DEFAULT_FORMAT,
        output_format=DEFAULT_FORMAT,
        turn_detection=detection,
        overlap_policy=overlap_policy_for(detection),
        auto_response=True,
        counts_input=True,
        playback_commit_policy=PlaybackCommitPolicy.REAL_TIME,
    )


def _unsupported(why: str, param: str) -> UnsupportedOption:
    return UnsupportedOption(f"{why}; leave {param} out", param=param)
