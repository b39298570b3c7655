"""Leases: who may use an engine, until when, and when a slot is free again.

Rule 1: admission is decided here, in one step: a session is in the book or it is refused.
Rule 2: a lease ends once, with the first reason given. From then on nobody may use it.
Rule 3: an ended lease keeps its slot until the model has released the session (`free`).
Rule 4: a lease that is not renewed within its time to live ends by itself (`expire`).
"""

import asyncio
import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from session.errors import AdmissionRefused, DuplexError, StageRefused
from session.ids import SessionId
from stages.descriptor import Descriptor


class LeaseEnd(enum.Enum):
    """Why a lease is over."""

    CLOSED = "closed"
    """The gateway closed the session."""
    GIVEN_BACK = "given_back"
    """The gateway let go of the lease without closing the session."""
    EXPIRED = "expired"
    """The gateway did not renew it."""
    GATEWAY_LOST = "gateway_lost"
    """The gateway's process is gone."""
    ENGINE_LOST = "engine_lost"
    """The engine's process is gone, and the session's state with it."""


@dataclass(frozen=True, slots=True)
class LeaseGranted:
    """First item of a lease: the way to the engine that holds the session from now on."""

    engine: Any
    """Handle of the engine's actor."""
    stage: str
    descriptor: Descriptor
    replica: str
    """The replica that owns the engine."""


@dataclass(frozen=True, slots=True)
class LeaseRefused:
    """Only item of a lease that was not granted."""

    error: DuplexError
    replica: str
    """The replica that refused; another one may have room."""


@dataclass(frozen=True, slots=True)
class LeaseEnded:
    """Last item of a lease: nobody may use it any more, and why.

    The stream goes on, without further items, until the stage has released the session. A stream
    that ends without this item has lost its replica.
    """

    end: LeaseEnd


LeaseItem = LeaseGranted | LeaseRefused | LeaseEnded


@dataclass(eq=False, slots=True)
class HeldLease:
    """One session's place in the book."""

    session_id: SessionId
    incarnation: int
    expires_at_s: float
    over: asyncio.Future[LeaseEnd] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    freed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the slot is free again."""

    @property
    def is_over(self) -> bool:
        """Whether nobody may use it any more."""
        return self.over.done()

    def end(self, reason: LeaseEnd) -> None:
        """End the lease, unless it has ended."""
        if not self.over.done():
            self.over.set_result(reason)

    async def ended(self) -> LeaseEnd:
        """Wait for the end and return its reason."""
        return await asyncio.shield(self.over)


class LeaseBook:
    """The slots of one engine. `now` is always monotonic seconds."""

    def __init__(self, *, max_sessions: int, ttl_s: float) -> None:
        self._max_sessions = max_sessions
        self._ttl_s = ttl_s
        self._held: dict[SessionId, HeldLease] = {}

    @property
    def max_sessions(self) -> int:
        """Number of slots."""
        return self._max_sessions

    @property
    def taken(self) -> int:
        """Slots that are not free."""
        return len(self._held)

    def admit(self, session_id: SessionId, incarnation: int, *, now: float) -> HeldLease:
        """Give the session a slot; raises AdmissionRefused when there is none."""
        if session_id in self._held:
            raise StageRefused("the session still holds a slot here")
        if len(self._held) >= self._max_sessions:
            raise AdmissionRefused(
                f"all {self._max_sessions} session slots are taken; try again later (a session "
                "whose client has left keeps its slot until disconnect_grace_s is over)"
            )
        lease = HeldLease(session_id, incarnation, now + self._ttl_s)
        self._held[session_id] = lease
        return lease

    def of(self, session_id: SessionId, incarnation: int) -> HeldLease | None:
        """Return the lease of one life of a session, over or not."""
        lease = self._held.get(session_id)
        return lease if lease is not None and lease.incarnation == incarnation else None

    def renew(self, session_ids: Iterable[SessionId], *, now: float) -> tuple[SessionId, ...]:
        """Prolong leases; return the sessions that have none any more."""
        lost = []
        for session_id in session_ids:
            lease = self._held.get(session_id)
            if lease is None or lease.is_over:
                lost.append(session_id)
            else:
                lease.expires_at_s = now + self._ttl_s
        return tuple(lost)

    def expire(self, *, now: float) -> None:
        """End the leases whose time is up."""
        for lease in self._held.values():
            if lease.expires_at_s <= now:
                lease.end(LeaseEnd.EXPIRED)

    def ending(self) -> list[HeldLease]:
        """Return the leases that are over and still keep their slot."""
        return [lease for lease in self._held.values() if lease.is_over]

    def free(self, lease: HeldLease) -> None:
        """The model holds nothing of the session any more: the slot is free."""
        lease.end(LeaseEnd.CLOSED)
        lease.freed.set()
        if self._held.get(lease.session_id) is lease:
            del self._held[lease.session_id]
