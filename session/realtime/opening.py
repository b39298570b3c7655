"""What a socket's reader and its session's projector are given at the beginning."""

from dataclasses import dataclass, field
from typing import Protocol

from session.ids import SessionId
from session.realtime.commands import Command
from session.realtime.rate_limits import ReadRates, no_rates


class Reader(Protocol):
    """Turns one socket's frames into commands; may remember what came before."""

    def decode(self, text: str, *, max_bytes: int) -> Command:
        """Return what `text` asks for, or EventRefused. Total: nothing is raised."""
        ...


@dataclass(slots=True)
class ClientHabits:
    """What a client has shown of itself. Its reader writes it, its session's projector reads it."""

    uses_vendor_events: bool = False
    """It has sent an event that the standard does not have, so it knows the answers to such."""
    clears_output: bool = False
    """It has asked for its output buffer to be cleared, so it knows the answer to that."""


@dataclass(frozen=True, slots=True)
class Opening:
    """Facts of a session that are known before it is open."""

    session_id: SessionId
    began_unix_s: int
    """Wall clock, whole seconds."""
    habits: ClientHabits = field(default_factory=ClientHabits)
    is_lobby: bool = False
    """This way out is only for what is said before there is a session."""
    is_configured: bool = False
    """The client's settings opened the session; otherwise it began with the server's."""
    read_rates: ReadRates = no_rates
    """What the client is told of its rates."""
