"""Round trips of requests that are answered in order, on one clock."""

from collections import deque

from clients.events import ConnectionLost, HeartbeatAck, ServerEvent


class RoundTrips:
    """Pairs each answer with the oldest request that has none yet."""

    def __init__(self) -> None:
        self._sent_s: deque[float] = deque()
        self._lost = 0
        self.taken_ms: list[float] = []

    @property
    def unanswered(self) -> int:
        """Requests that have had no answer."""
        return self._lost + len(self._sent_s)

    def sent(self, at_s: float) -> None:
        """A request is about to be sent."""
        self._sent_s.append(at_s)

    def answered(self, at_s: float) -> None:
        """An answer was received."""
        self.taken_ms.append((at_s - self._sent_s.popleft()) * 1000)

    def observe(self, event: ServerEvent) -> None:
        """Take an event; heartbeats are the requests.

        Nobody knows which of them a lost connection swallowed, so none of them is timed.
        """
        match event:
            case HeartbeatAck() if self._sent_s:
                self.answered(event.received_s)
            case ConnectionLost():
                self._lost += len(self._sent_s)
                self._sent_s.clear()
            case _:
                pass
