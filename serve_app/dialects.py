"""The dialects of the wire, and everything that is particular to each.

A dialect reads a client's text into commands and projects the kernel's events to text. The session
between the two is the same for all of them.
"""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from serve_app.audio.audio_codec import OutputEncoder
from session.config import SessionConfig, default_config, openai_config
from session.events import Event
from session.model_profile import ModelProfile
from session.outbox import Projector, WireEvent
from session.realtime.commands import Command
from session.realtime.decode import decode
from session.realtime.dialects.audio_pieces import Encode
from session.realtime.dialects.duplex import DuplexProjector
from session.realtime.dialects.duplex_ga import DuplexGaProjector
from session.realtime.dialects.internal import InternalProjector
from session.realtime.dialects.live import LiveProjector
from session.realtime.dialects.openai import OpenAIProjector
from session.realtime.facts import ServerFacts
from session.realtime.live.reader import LiveReader
from session.realtime.live.session_config import live_defaults
from session.realtime.openai.reader import OpenAIReader
from session.realtime.opening import ClientHabits, Opening, Reader


class Dialect(enum.Enum):
    """What a session's events are called on the wire; the same for all of its sockets."""

    DUPLEX = "duplex"
    DUPLEX_GA = "duplex_ga"
    INTERNAL = "internal"
    OPENAI = "openai"
    LIVE = "live"


class NewProjector(Protocol):
    """Makes the projector of one session."""

    def __call__(self, facts: ServerFacts, encode: Encode, opening: Opening) -> Projector:
        """Return a projector that writes audio with `encode`."""
        ...


@dataclass(frozen=True, slots=True)
class DialectKit:
    """All that tells a dialect from the others."""

    dialect: Dialect
    new_reader: Callable[[ClientHabits], Reader]
    new_projector: NewProjector
    defaults: Callable[[str, ModelProfile], SessionConfig] = default_config
    """Settings of a session whose client said nothing, by model id and profile."""
    greets: bool = False
    """A client is told of its session before it has said anything. The stages are opened with its
    first event, so that its settings can still reach them."""
    first_event: str = "session.update"
    """What opens a session, as a client that says nothing is told."""
    autostarts: bool = True
    """Whether a socket that names a model in its URL needs no first event."""
    has_realtime_sessions: bool = True
    """Its sessions are those of the Realtime API, so that a client secret's settings are theirs."""
    paces_speech: bool = False
    """Speech is sent as it is played, since the wire has no word for dropping it."""
    is_resumable: bool = True
    """Whether another socket can go on with the session, where the server allows that."""


class DuplexReader:
    """Reads the duplex dialect, which needs no memory."""

    def __init__(self, habits: ClientHabits) -> None:
        habits.uses_vendor_events = True

    def decode(self, text: str, *, max_bytes: int) -> Command:
        """Return what `text` asks for, or EventRefused."""
        return decode(text, max_bytes=max_bytes)


class EncodingProjector:
    """A dialect's projector, with the audio encoder whose state follows the events."""

    def __init__(self, kit: DialectKit, facts: ServerFacts, opening: Opening) -> None:
        self._encoder = OutputEncoder()
        self._projector = kit.new_projector(facts, self._encoder.encode, opening)

    def project(self, event: Event) -> list[WireEvent]:
        """Return the event's wire events in order."""
        self._encoder.attend(event)
        return list(self._projector.project(event))


DUPLEX: Final = DialectKit(
    Dialect.DUPLEX,
    DuplexReader,
    lambda facts, encode, opening: DuplexProjector(facts=facts, encode=encode),
)
DUPLEX_GA: Final = DialectKit(
    Dialect.DUPLEX_GA,
    DuplexReader,
    lambda facts, encode, opening: DuplexGaProjector(facts=facts, encode=encode),
)
INTERNAL: Final = DialectKit(
    Dialect.INTERNAL, DuplexReader, lambda facts, encode, opening: InternalProjector()
)
OPENAI: Final = DialectKit(
    Dialect.OPENAI,
    OpenAIReader,
    lambda facts, encode, opening: OpenAIProjector(facts=facts, encode=encode, opening=opening),
    defaults=openai_config,
    greets=True,
    is_resumable=False,
)
LIVE: Final = DialectKit(
    Dialect.LIVE,
    LiveReader,
    lambda facts, encode, opening: LiveProjector(facts=facts, encode=encode, opening=opening),
    defaults=live_defaults,
    first_event="session.start",
    has_realtime_sessions=False,
    autostarts=False,
    paces_speech=True,
    is_resumable=False,
)
KITS: Final[Mapping[Dialect, DialectKit]] = {
    kit.dialect: kit for kit in (DUPLEX, DUPLEX_GA, INTERNAL, OPENAI, LIVE)
}
"""Every dialect that the gateway speaks."""
