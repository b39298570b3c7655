"""What sockets get from their gateway: a lobby, new sessions, and sessions that run already."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from serve_app.access.principal import ANYONE, Principal
from serve_app.access.quota_desk import QuotaDesk
from serve_app.clock import unix_now_s
from serve_app.dialects import DUPLEX, DialectKit, EncodingProjector
from serve_app.logs.session_story import Caller
from serve_app.sessions.bounded_opens import counted, refused
from serve_app.sessions.open_sessions import OpenSessions
from serve_app.sessions.outbound import Outbound
from serve_app.sessions.session_actor import SessionActor, World
from session.config import SessionConfig
from session.errors import QuotaExceeded
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
    desk: QuotaDesk
    kit: DialectKit = DUPLEX
    owner: Principal = ANYONE
    """Whose sessions its sockets begin."""

    @property
    def is_resumable(self) -> bool:
        """Whether another socket can go on with a session."""
        return self.kit.is_resumable and self.world.limits.disconnect_grace_s > 0

    def new_attachment(self) -> AttachmentId:
        """Name a socket."""
        return AttachmentId(self.ids.new("att"))

    def new_opening(self) -> Opening:
        """Name the session that a socket may begin."""
        read_rates = partial(self.desk.rates, self.owner)
        return Opening(SessionId(self.ids.new("sess")), unix_now_s(), read_rates=read_rates)

    def lobby(self, attachment: AttachmentId, opening: Opening) -> Outbound:
        """Return the way out to a socket that has no session yet."""
        outbox = self._outbox(attachment, replace(opening, is_lobby=True), keeps_journal=False)
        return Outbound(outbox, clock=self.world.clock, fence=lambda: NOBODY)

    def begin(self, config: SessionConfig, asked: OpenRequested, opening: Opening) -> SessionActor:
        """Start a session and return it. One that its owner may not have gets no stages."""
        world = self.world
        owner: Principal | None = self.owner
        try:
            open_stages = counted(world.directory.open, self.desk.open(self.owner))
        except QuotaExceeded as error:
            open_stages, owner = refused(error), None
            # No work is done for it either: its voice is not prepared.
            config = replace(config, ref_audio=b"")
        # Until a directory of sessions issues incarnations, an id is never used twice.
        fence = Fence(opening.session_id, incarnation=0, epoch=0, turn=0)
        session = DuplexSession(
            fence=fence,
            config=config,
            limits=world.limits,
            profile=world.directory.descriptor.profile,
            ids=self.ids,
        )
        outbox = self._outbox(asked.attachment, opening, keeps_journal=asked.is_resumable)
        dialect = self.kit.dialect
        record = world.records.begin(
            fence,
            Caller(dialect.value, self.owner.name),
            since_unix_s=opening.began_unix_s,
            now=world.clock.now(),
        )
        actor = SessionActor(
            session,
            world=world,
            open_stages=open_stages,
            outbox=outbox,
            record=record,
            dialect=dialect,
        )
        # Nothing has waited since it was counted, so two clients never get the same place.
        self.sessions.start(actor, dialect, owner)
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
