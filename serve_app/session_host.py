"""What sockets get from their gateway: a lobby, new sessions, and sessions that run already."""

from dataclasses import dataclass, replace
from typing import Final

from serve_app.clock import unix_now_s
from serve_app.dialects import DUPLEX, DialectKit, EncodingProjector
from serve_app.open_sessions import OpenSessions
from serve_app.outbound import Outbound
from serve_app.session_actor import SessionActor, World
from session.config import SessionConfig
from session.fence import Fence
from session.ids import AttachmentId, IdFactory, SessionId
from session.machine import DuplexSession
from session.outbox import Outbox
from session.pacing import Pace
from session.realtime.facts import ServerFacts
from session.realtime.opening import Opening
from session.stimuli import OpenRequested

NOBODY: Final = Fence(SessionId(""), 0, 0, 0)
"""The fence of a socket that has no session."""


@dataclass(frozen=True, slots=True)
class SessionHost:
    """What the connections of one dialect get from their gateway."""

    world: World
    defaults: SessionConfig
    facts: ServerFacts
    ids: IdFactory
    sessions: OpenSessions
    kit: DialectKit = DUPLEX

    @property
    def is_resumable(self) -> bool:
        """Whether another socket can go on with a session."""
        return self.kit.is_resumable and self.world.limits.disconnect_grace_s > 0

    def new_attachment(self) -> AttachmentId:
        """Name a socket."""
        return AttachmentId(self.ids.new("att"))

    def new_opening(self) -> Opening:
        """Name the session that a socket may begin."""
        return Opening(SessionId(self.ids.new("sess")), unix_now_s())

    def lobby(self, attachment: AttachmentId, opening: Opening) -> Outbound:
        """Return the way out to a socket that has no session yet."""
        outbox = self._outbox(attachment, replace(opening, is_lobby=True), keeps_journal=False)
        return Outbound(outbox, clock=self.world.clock, fence=lambda: NOBODY)

    def begin(self, config: SessionConfig, asked: OpenRequested, opening: Opening) -> SessionActor:
        """Start a session and return it."""
        # Until a directory of sessions issues incarnations, an id is never used twice.
        fence = Fence(opening.session_id, incarnation=0, epoch=0, turn=0)
        session = DuplexSession(
            fence=fence,
            config=config,
            limits=self.world.limits,
            profile=self.world.directory.descriptor.profile,
            ids=self.ids,
        )
        outbox = self._outbox(asked.attachment, opening, keeps_journal=asked.is_resumable)
        actor = SessionActor(session, world=self.world, outbox=outbox, dialect=self.kit.dialect)
        self.sessions.start(actor, self.kit.dialect)
        return actor

    def find(self, session_id: SessionId) -> SessionActor | None:
        """Return a session of this dialect that is not over."""
        return self.sessions.find(session_id, self.kit.dialect)

    def _outbox(self, attachment: AttachmentId, opening: Opening, *, keeps_journal: bool) -> Outbox:
        return Outbox(
            EncodingProjector(self.kit, self.facts, opening),
            ids=self.ids,
            limits=self.world.limits,
            attachment=attachment,
            keeps_journal=keeps_journal,
            pace=Pace() if self.kit.paces_speech else None,
        )
