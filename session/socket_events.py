"""What a client shall learn about its socket and its session's time; the rest is in `events`."""

from dataclasses import dataclass, field

from session.fence import Fence
from session.snapshot import SessionSnapshot


@dataclass(frozen=True, slots=True)
class SessionResumed:
    """Another socket goes on with the session."""

    session: SessionSnapshot
    attachment_generation: int
    resume_token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class SessionReplaced:
    """To a socket whose session went on with another one: the last thing that it is sent."""

    fence: Fence
    attachment_generation: int
    """That of the socket which is told."""


@dataclass(frozen=True, slots=True)
class ResyncRequired:
    """What the client has not read can not be sent again."""

    fence: Fence
    reason: str
    """journal_gap or journal_overflow."""
    oldest_seq: int | None = None
    newest_seq: int | None = None
    """A client that can do without the rest may resume after `oldest_seq - 1`."""


@dataclass(frozen=True, slots=True)
class SessionExpiring:
    """The session will end soon, whatever happens in it."""

    fence: Fence
    reason: str
    expires_in_ms: int
