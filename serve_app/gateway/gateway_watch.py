"""What a gateway's gauges are, told once a second from the sessions and sockets that there are.

Nothing here is counted up and down, so nothing can be left over when a client leaves abruptly.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

from serve_app.clock import Clock, Timer, unix_now_s
from serve_app.metrics.definitions import (
    BUFFERED,
    DRAINING,
    GATEWAY_SECONDS,
    GATEWAY_STARTED,
    JAIN,
    LAG_RATIO,
    OPEN_SESSIONS,
    OPEN_SOCKETS,
    SESSION_SECONDS,
    SOCKETS_CLOSED,
    SOCKETS_OPENED,
)
from serve_app.metrics.fairness import Fairness, jain_index, lag_ratio
from serve_app.metrics.meter import REFRESH_S, Meter
from serve_app.sessions.open_sessions import OpenSessions

STATES: Final = OPEN_SESSIONS.labels["state"]


class GatewayWatch:
    """Looks at one gateway replica."""

    def __init__(
        self,
        meter: Meter,
        sessions: OpenSessions,
        clock: Clock,
        flush: Callable[[float], None],
    ) -> None:
        self.meter = meter
        self.fairness = Fairness()
        self._sessions = sessions
        self._clock = clock
        self._flush = flush
        self._sockets: set[object] = set()
        self._looked_at_s = clock.now()
        self._due_s = clock.now()
        self._timer: Timer | None = None

    def start(self) -> None:
        """Look now, and every second from now on."""
        self._looked_at_s = self._due_s = self._clock.now()
        self.meter.set(GATEWAY_STARTED, unix_now_s())
        self._go_round()

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def socket_opened(self, socket: object, dialect: str) -> None:
        """A WebSocket was accepted."""
        self._sockets.add(socket)
        self.meter.count(SOCKETS_OPENED, dialect)

    def socket_closed(self, socket: object, by: str, code: int) -> None:
        """It is closed, however that came."""
        self._sockets.discard(socket)
        self.meter.count(SOCKETS_CLOSED, by, str(code))

    def open_sockets(self) -> int:
        """Return how many WebSockets are open."""
        return len(self._sockets)

    def look(self) -> None:
        """Say what there is now."""
        now = self._clock.now()
        states = Counter(session.state for session in self._sessions)
        for state in STATES:
            self.meter.set(OPEN_SESSIONS, states[state], state)
        self.meter.set(DRAINING, int(self._sessions.is_draining))
        self.meter.set(OPEN_SOCKETS, len(self._sockets))
        waiting = (session.outbound.outbox.waiting_bytes for session in self._sessions)
        self.meter.set(BUFFERED, sum(waiting))
        means = self.fairness.means(now=now)
        self.meter.set(LAG_RATIO, lag_ratio(means))
        self.meter.set(JAIN, jain_index(means))
        holding = len(self._sessions) - states["opening"]
        self.meter.count(SESSION_SECONDS, by=holding * (now - self._looked_at_s))
        self._looked_at_s = now

    def _go_round(self) -> None:
        now = self._clock.now()
        try:
            self.meter.observe(GATEWAY_SECONDS, max(0.0, now - self._due_s), "loop_delay")
            self.look()
            self.meter.refresh()
            self._flush(now)
        finally:
            self._due_s = now + REFRESH_S
            self._timer = self._clock.call_at(self._due_s, self._go_round)
