"""The sessions that run in this process.

Each runs as a task of its own: a proxy may cancel the handler of a socket at any moment, and the
session must still give its stages back.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator

from serve_app.access.principal import Principal
from serve_app.dialects import Dialect
from serve_app.logs.log_lines import Facts, say
from serve_app.sessions.session_actor import SessionActor
from session.ids import SessionId
from session.leaving import AT_DEADLINE
from session.service_stimuli import DrainRequested, DrainWithdrawn
from session.stimuli import CloseRequested

log = logging.getLogger(__name__)


class OpenSessions:
    """Starts sessions, knows those that are not over, and ends them with the process."""

    def __init__(self) -> None:
        self._running: dict[asyncio.Task[None], SessionActor] = {}
        self._by_id: dict[tuple[SessionId, Dialect], SessionActor] = {}
        self._owned: dict[asyncio.Task[None], Principal] = {}
        self.cut_at_deadline = 0
        """Sessions that ended because a drain's time was over, since this process began."""
        self._without: set[Callable[[], None]] = set()
        self.drain_until_s: float | None = None
        """When a drain is over at the latest, by the sessions' clock; None while there is none."""

    @property
    def is_draining(self) -> bool:
        """Whether no new session is to begin."""
        return self.drain_until_s is not None

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[SessionActor]:
        return iter(list(self._running.values()))

    def start(
        self,
        actor: SessionActor,
        dialect: Dialect = Dialect.DUPLEX,
        owner: Principal | None = None,
    ) -> None:
        """Run a session until it has given its stages back. It is one of its owner's, if any."""
        task = asyncio.get_running_loop().create_task(actor.run())
        self._running[task] = actor
        place = (actor.fence.session_id, dialect)
        self._by_id[place] = actor
        if owner is not None:
            self._owned[task] = owner
        task.add_done_callback(lambda done: self._ended(done, place))

    def find(self, session_id: SessionId, dialect: Dialect = Dialect.DUPLEX) -> SessionActor | None:
        """Return a session of a dialect that is not over."""
        return self._by_id.get((session_id, dialect))

    def held_by(self, owner: Principal) -> int:
        """Return how many sessions of an owner are not over, with or without a client."""
        return sum(
            held_by == owner and not self._running[task].is_over
            for task, held_by in self._owned.items()
        )

    def drain(self, until_s: float) -> None:
        """Have every session end at a quiet moment, or at a time of the sessions' clock."""
        self.drain_until_s = until_s
        for actor in self:
            actor.post(DrainRequested(until_s))
        self._tell_those_without()

    def stay(self) -> None:
        """Let sessions begin again, and those that have not ended go on."""
        self.drain_until_s = None
        for actor in self:
            actor.post(DrainWithdrawn())
        self._tell_those_without()

    def tell_of_drains(self, call: Callable[[], None]) -> None:
        """Call for a socket that has no session whenever a drain begins, changes or is over."""
        self._without.add(call)

    def tell_no_more(self, call: Callable[[], None]) -> None:
        """Such a socket has a session, or is gone; harmless when it was never told."""
        self._without.discard(call)

    async def close_all(self, reason: str, *, within_s: float) -> None:
        """Ask every session to close, and wait for their stages to be free."""
        for actor in self._running.values():
            actor.post(CloseRequested(reason))
        try:
            async with asyncio.timeout(within_s):
                await self.wait_idle()
        except TimeoutError:
            sentence = "sessions had not given their stages back in time"
            say(log, logging.WARNING, sentence, facts=Facts(count=len(self)))

    async def wait_idle(self) -> None:
        """Wait until no session is left."""
        while self._running:
            await asyncio.wait(set(self._running))

    def _tell_those_without(self) -> None:
        for call in list(self._without):
            call()

    def _ended(self, task: asyncio.Task[None], place: tuple[SessionId, Dialect]) -> None:
        actor = self._running.pop(task)
        del self._by_id[place]
        self._owned.pop(task, None)
        self.cut_at_deadline += actor.end_reason == AT_DEADLINE
        if not task.cancelled() and task.exception() is not None:
            sentence, fence = "a session could not give its stages back", actor.fence
            say(log, logging.ERROR, sentence, fence, error=task.exception())
