"""Takes a gateway replica out of service: no new sessions, and those that are open end quietly.

Rule 1: it is asked for as often as one likes. Asked again, it goes on; with another time, that
        holds from now on.
Rule 2: a socket that may resume a session is let in, because its session is here. One that will
        surely begin a new session is refused in its handshake, where load balancers understand it.
        At the deadline nothing is left to resume: from then on every socket is refused so.
Rule 3: it lives in this replica's memory. A replica that is started anew is in service.
"""

import enum
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel

from serve_app.clock import Clock
from serve_app.dialects import DialectKit
from serve_app.gateway.socket_query import Query
from serve_app.metrics.definitions import OPEN_SESSIONS
from serve_app.sessions.open_sessions import OpenSessions
from serve_app.settings import Place
from session.config import SessionLimits

LONGEST_S: Final = 86_400.0
UNBOUNDED_S: Final = 3600.0
"""How long a drain takes at most where nobody says it and sessions have no longest life."""


class DrainState(enum.Enum):
    """How far it is."""

    SERVING = "serving"
    DRAINING = "draining"
    DRAINED = "drained"
    """Nothing is left: the process may be ended."""


@dataclass(frozen=True, slots=True)
class _Period:
    """When it began and when it ends at the latest, in Unix time."""

    since_s: int
    until_s: int
    cut_before: int
    """Sessions that deadlines had cut when it began."""


class DrainView(BaseModel):
    """What an operator is told, as JSON; times are in Unix seconds."""

    state: str
    """serving, draining or drained."""
    sessions: dict[str, int]
    """How many are open, by state."""
    sockets: int
    since: int | None
    deadline: int | None
    cut_sessions: int
    """Ended by the deadline, since the drain began."""
    replica: str
    """Of the gateway that answers: it says this of itself alone."""
    node: str


class Draining:
    """The drain of one gateway replica."""

    def __init__(
        self,
        sessions: OpenSessions,
        open_sockets: Callable[[], int],
        *,
        clock: Clock,
        limits: SessionLimits,
        place: Place,
    ) -> None:
        self._sessions = sessions
        self._open_sockets = open_sockets
        self._clock = clock
        self._default_s = limits.max_session_s or UNBOUNDED_S
        self._place = place
        self._period: _Period | None = None

    def begin(self, within_s: float | None, *, now_unix_s: int) -> None:
        """Take no new session; have each open one end at a quiet moment, or within this time.

        None: as long as the longest session may last, or what was said before.
        """
        before = self._period
        if before is not None and within_s is None:
            return
        lasts_s = self._default_s if within_s is None else within_s
        since_s = now_unix_s if before is None else before.since_s
        cut_before = self._sessions.cut_at_deadline if before is None else before.cut_before
        self._period = _Period(since_s, now_unix_s + round(lasts_s), cut_before)
        self._sessions.drain(self._clock.now() + lasts_s)

    def withdraw(self) -> None:
        """Be in service again; sessions that have not ended stay."""
        if self._period is not None:
            self._period = None
            self._sessions.stay()

    @property
    def is_past_deadline(self) -> bool:
        """Whether nothing that was open may be open any more."""
        until_s = self._sessions.drain_until_s
        return until_s is not None and self._clock.now() >= until_s

    @property
    def state(self) -> DrainState:
        """How far it is."""
        if self._period is None:
            return DrainState.SERVING
        is_over = len(self._sessions) == 0 and self._open_sockets() == 0
        return DrainState.DRAINED if is_over else DrainState.DRAINING

    @property
    def cut_sessions(self) -> int:
        """How many sessions its deadline has ended since it began."""
        if self._period is None:
            return 0
        return self._sessions.cut_at_deadline - self._period.cut_before

    def view(self) -> DrainView:
        """Return what an operator is told."""
        states = Counter(session.state for session in self._sessions)
        period = self._period
        return DrainView(
            state=self.state.value,
            sessions={state: states[state] for state in OPEN_SESSIONS.labels["state"]},
            sockets=self._open_sockets(),
            since=None if period is None else period.since_s,
            deadline=None if period is None else period.until_s,
            cut_sessions=self.cut_sessions,
            replica=self._place.replica,
            node=self._place.node,
        )


def surely_begins(kit: DialectKit, query: Query, limits: SessionLimits) -> bool:
    """Whether a socket can do nothing but begin a new session."""
    if not kit.is_resumable or limits.disconnect_grace_s == 0:
        return True
    return query.model is not None and query.autostarts and kit.autostarts
