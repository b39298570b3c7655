"""The lease ledger: how long a session may go on.

Rule 1: whatever a client sends and whatever a model answers keeps a session alive; time alone
        does not.
Rule 2: a session whose unit is out is not idle.
Rule 3: a session without a client ends after its grace, whatever goes on in it, and no session
        lasts longer than the server allows.
"""

from dataclasses import dataclass

from session.config import SessionLimits


@dataclass(slots=True)
class LeaseLedger:
    """When a session was opened and last active. All in seconds of the session's clock."""

    opened_at_s: float = 0.0
    active_at_s: float = 0.0
    """When the client or a model last did anything."""
    received_at_s: float = 0.0
    """When the client last sent anything."""
    is_end_announced: bool = False
    """Whether the client has been told that the session's time is nearly up."""

    def open(self, now: float) -> None:
        """Begin."""
        self.opened_at_s = self.active_at_s = self.received_at_s = now

    def touch(self, now: float) -> None:
        """The model did something, or a client came or went."""
        self.active_at_s = now

    def receive(self, now: float) -> None:
        """The client sent something."""
        self.active_at_s = self.received_at_s = now

    def idle_at_s(self, limits: SessionLimits) -> float | None:
        """When the session will have been idle for too long."""
        return None if limits.idle_ttl_s is None else self.active_at_s + limits.idle_ttl_s

    def ends_at_s(self, limits: SessionLimits) -> float | None:
        """When the session ends whatever happens."""
        return None if limits.max_session_s is None else self.opened_at_s + limits.max_session_s

    def announces_at_s(self, limits: SessionLimits) -> float | None:
        """When the client is to be told of the end; None once it has been."""
        if limits.max_session_s is None or self.is_end_announced:
            return None
        notice_s = min(limits.expiring_notice_s, limits.max_session_s / 2)
        return self.opened_at_s + limits.max_session_s - notice_s
