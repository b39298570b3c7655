"""What the server says about a session and its sockets; the rest is in `server_events`."""

from typing import ClassVar, Literal

from pydantic import Field

from session.realtime.event_objects import NoFact
from session.realtime.server_objects import Absent, SessionObject, WireObject


class ServerEvent(WireObject):
    """Base of every server event."""

    is_journaled: ClassVar[bool] = True
    """Whether it is numbered, and sent again to a client that has not read it."""

    type: str
    event_id: str = ""
    """Filled in by `to_text`, so that no event can be sent without."""
    server_event_seq: Absent[int] = None
    """Counts the events of a session that can be resumed, from 1 and without gaps."""

    def to_text(self, event_id: str, server_event_seq: int | None = None) -> str:
        """Return the JSON text of the frame."""
        stamps = {"event_id": event_id, "server_event_seq": server_event_seq}
        return self.model_copy(update=stamps).model_dump_json()


class SessionCreated(ServerEvent):
    """The session is open; the first event."""

    is_journaled = False
    type: Literal["session.created"] = "session.created"
    session: SessionObject
    attachment_generation: Absent[int] = None
    """1. Absent, like the token, where the session can not be resumed."""
    resume_token: Absent[str] = Field(default=None, repr=False)


class SessionResumed(ServerEvent):
    """The session goes on with this socket; what was missed follows."""

    is_journaled = False
    type: Literal["session.resumed"] = "session.resumed"
    session_id: str
    session: SessionObject
    attachment_generation: int
    resume_token: str = Field(repr=False)


class SessionReplaced(ServerEvent):
    """Another socket has the session now; the last event of this one."""

    is_journaled = False
    type: Literal["session.replaced"] = "session.replaced"
    session_id: str
    attachment_generation: int


class SessionResyncRequired(ServerEvent):
    """Events that the client has not read can not be sent again."""

    is_journaled = False
    type: Literal["session.resync_required"] = "session.resync_required"
    session_id: str
    reason: Literal["journal_gap", "journal_overflow"]
    oldest_server_event_seq: int | None
    newest_server_event_seq: int | None


class SessionExpiring(ServerEvent):
    """The session will end soon, whatever happens in it."""

    type: Literal["session.expiring"] = "session.expiring"
    session_id: str
    reason: str
    expires_in_ms: int


class SessionUpdated(ServerEvent):
    """The settings are these now."""

    type: Literal["session.updated"] = "session.updated"
    session: SessionObject


class SessionClosed(ServerEvent):
    """The last event of a session that was closed on request."""

    type: Literal["session.closed"] = "session.closed"
    session_id: str
    reason: str
    event: NoFact = NoFact()


class SessionExpired(ServerEvent):
    """The last event of a session that the server ended."""

    type: Literal["session.expired"] = "session.expired"
    session_id: str
    reason: str


class SessionHeartbeatAck(ServerEvent):
    """The session lives."""

    type: Literal["session.heartbeat_ack"] = "session.heartbeat_ack"
    session_id: str
