"""What sockets get from their gateway: a lobby, new sessions, and sessions that run already."""

from dataclasses import dataclass
from typing import Final

from serve_app.audio_codec import OutputEncoder
from serve_app.open_sessions import Dialect, OpenSessions
from serve_app.outbound import Outbound
from serve_app.session_actor import SessionActor, World
from session.config import SessionConfig
from session.events import Event
from session.fence import Fence
from session.ids import AttachmentId, IdFactory, SessionId
from session.machine import DuplexSession
from session.outbox import Outbox, Projector
from session.realtime.dialects.duplex import DuplexProjector
from session.realtime.dialects.internal import InternalProjector
from session.realtime.facts import ServerFacts
from session.realtime.session_events import ServerEvent
from session.stimuli import OpenRequested

NOBODY: Final = Fence(SessionId(""), 0, 0, 0)
"""The fence of a socket that has no session."""


class EncodingProjector:
    """The duplex dialect, with the encoder whose state follows the events."""

    def __init__(self, facts: ServerFacts) -> None:
        self._encoder = OutputEncoder()
        self._projector = DuplexProjector(facts=facts, encode=self._encoder.encode)

    def project(self, event: Event) -> list[ServerEvent]:
        """Return the event's wire events in order."""
        self._encoder.attend(event)
        return self._projector.project(event)


@dataclass(frozen=True, slots=True)
class SessionHost:
    """Implements `serve_app.connection.Host` for one gateway."""

    world: World
    defaults: SessionConfig
    facts: ServerFacts
    ids: IdFactory
    sessions: OpenSessions
    dialect: Dialect = Dialect.DUPLEX

    def new_attachment(self) -> AttachmentId:
        """Name a socket."""
        return AttachmentId(self.ids.new("att"))

    def lobby(self, attachment: AttachmentId) -> Outbound:
        """Return the way out to a socket that has no session yet."""
        outbox = self._outbox(attachment, keeps_journal=False)
        return Outbound(outbox, clock=self.world.clock, fence=lambda: NOBODY)

    def begin(self, config: SessionConfig, opening: OpenRequested) -> SessionActor:
        """Start a session and return it."""
        # Until a directory of sessions issues incarnations, an id is never used twice.
        fence = Fence(SessionId(self.ids.new("sess")), incarnation=0, epoch=0, turn=0)
        session = DuplexSession(
            fence=fence,
            config=config,
            limits=self.world.limits,
            profile=self.world.directory.descriptor.profile,
            ids=self.ids,
        )
        outbox = self._outbox(opening.attachment, keeps_journal=opening.is_resumable)
        actor = SessionActor(session, world=self.world, outbox=outbox)
        self.sessions.start(actor, self.dialect)
        return actor

    def find(self, session_id: SessionId) -> SessionActor | None:
        """Return a session of this dialect that is not over."""
        return self.sessions.find(session_id, self.dialect)

    def _outbox(self, attachment: AttachmentId, *, keeps_journal: bool) -> Outbox:
        return Outbox(
            self._projector(),
            ids=self.ids,
            limits=self.world.limits,
            attachment=attachment,
            keeps_journal=keeps_journal,
        )

    def _projector(self) -> Projector:
        if self.dialect is Dialect.INTERNAL:
            return InternalProjector()
        return EncodingProjector(self.facts)
