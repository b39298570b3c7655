"""What a client may send on the live wire: one model per event.

Strict: an unknown field is refused by its path. What each is answered with stands in docs/live.md.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import Field

from session.errors import IllegalNow, MalformedEvent
from session.realtime.client_events import Id
from session.realtime.commands import Command
from session.realtime.live.session_config import StartConfig, Strict, UpdateConfig
from session.stimuli import CloseRequested, SessionConfigured
from session.stream_stimuli import ContextAppended, ContextUse, InputMuteSet

MAX_CONTENT_CHARS: Final = 4_000
"""Longest text of one append; the hosted service says 500 tokens, which are never more."""
DRAIN_S: Final = 10.0
"""An answer in progress may take so long to come to its end when the client closes."""


class LiveEvent(Strict):
    """Base of every client event."""

    event_id: Id | None = None


class SessionStart(LiveEvent):
    """Opens the session; the first event, once."""

    type: Literal["session.start"]
    session: StartConfig


class InputAudioAppend(LiveEvent):
    """Adds audio; any number, no answer."""

    type: Literal["session.input_audio.append"]
    audio: str


class CommandEvent(LiveEvent):
    """Base of what stands for a command by itself."""

    @abstractmethod
    def to_command(self) -> Command:
        """Return what the event asks for; raise ClientError if it can not be asked."""


class SessionUpdate(CommandEvent):
    """Changes what may change; answered with session.updated."""

    type: Literal["session.update"]
    session: UpdateConfig

    def to_command(self) -> Command:
        """Return the settings as a patch."""
        return SessionConfigured(self.session.read_patch(), self.event_id)


class SessionClose(CommandEvent):
    """Closes the session once the answer in progress has come to its end; once."""

    type: Literal["session.close"]

    def to_command(self) -> Command:
        """Return the stimulus."""
        return CloseRequested(event_id=self.event_id, drain_s=DRAIN_S)


class InputAudioMute(CommandEvent):
    """From here on the audio that comes is silence."""

    type: Literal["session.input_audio.mute"]

    def to_command(self) -> Command:
        """Return the stimulus."""
        return InputMuteSet(is_muted=True, event_id=self.event_id)


class InputAudioUnmute(CommandEvent):
    """From here on the audio that comes is heard."""

    type: Literal["session.input_audio.unmute"]

    def to_command(self) -> Command:
        """Return the stimulus."""
        return InputMuteSet(is_muted=False, event_id=self.event_id)


class ContextAppend(CommandEvent):
    """Tells the model something that nobody says in the conversation."""

    type: Literal[
        "session.instructions.append", "session.thinking.append", "session.commentary.append"
    ]
    content: Annotated[str, Field(max_length=MAX_CONTENT_CHARS)]
    delegation_id: str | None
    """Has to be there; null for the session. There are no delegations that it could name."""

    def to_command(self) -> Command:
        """Return the stimulus."""
        if self.delegation_id is not None:
            raise IllegalNow(
                "this session has no delegation of that id; delegation_id must be null",
                code="delegation_not_found",
                param="delegation_id",
            )
        if not self.content.strip():
            raise MalformedEvent("content is empty", code="invalid_value", param="content")
        use = ContextUse(self.type.split(".")[1])
        return ContextAppended(use, self.content, self.event_id)


COMMANDS: Final[Mapping[str, type[CommandEvent]]] = {
    "session.update": SessionUpdate,
    "session.close": SessionClose,
    "session.input_audio.mute": InputAudioMute,
    "session.input_audio.unmute": InputAudioUnmute,
    "session.instructions.append": ContextAppend,
    "session.thinking.append": ContextAppend,
    "session.commentary.append": ContextAppend,
}
"""Events that stand for a command by themselves."""

REFUSAL_CODES: Final[Mapping[str, str]] = {
    "response.create": "responses_delegation_required",
    "response.item.create": "responses_delegation_required",
    "decision.create": "decisions_unsupported",
    "decision.item.create": "decisions_unsupported",
    "decision.item.delete": "decisions_unsupported",
    "session.output_audio.fixture.play": "audio_fixture_unsupported",
    "transport.dtmf.send": "sip_session_required",
}
"""Events of the wire that this server can not do, and the code of the error."""

REFUSALS: Final[Mapping[str, str]] = {
    "responses_delegation_required": "this session delegates nothing to Responses: the model "
    "answers what it hears by itself, and session.commentary.append tells it what to say",
    "decisions_unsupported": "decisions are not evaluated here",
    "audio_fixture_unsupported": "recordings are not played into a session here",
    "sip_session_required": "this session is not a telephone call",
}
"""What the errors say, by code."""
