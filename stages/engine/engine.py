"""Sessions whose memory stays in the engine between one segment and the next.

Rule 1: a session has its slot and all the memory it may ever need from `open` to `close`.
Rule 2: nothing reaches the backend that could harm another session: `stages.engine.check` and the
        guard on positions come first.
Rule 3: an append that fails, is refused or is cancelled leaves the session's memory as it was.
Rule 4: when the engine is dead, stuck or stopped, whoever waits and whoever calls gets EngineDied,
        at once. Only `close` and `cancel` go on working, so that tables can be emptied.
"""

import asyncio
import math
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from stages.engine.accounting import Accounting
from stages.engine.backend import Backend, BackendDead, Stream, StreamBroken
from stages.engine.check import SegmentCheck, length
from stages.engine.door import Door
from stages.engine.errors import (
    Busy,
    EngineDied,
    EngineFailed,
    MemoryFull,
    NotOpen,
    SegmentCancelled,
    SegmentFailed,
    WorkerFailed,
)
from stages.engine.held_request import HeldRequest, Listener
from stages.engine.settings import EngineSettings
from stages.engine.timing import segment_timing
from stages.engine.values import EngineCapacity, Pieces, Sampling, Segment, SegmentDone
from stages.engine.watchdog import Pause, Watchdog

T = TypeVar("T")

REBUILDS_AT_ONCE = 4
"""Of those that are made in the idle time: they shall not crowd out the units."""
REBUILD = Sampling(max_tokens=1)
"""A segment must sample; this one's token is the last, so nobody remembers it."""


class ResumableEngine:
    """Many sessions on one backend."""

    def __init__(
        self,
        settings: EngineSettings,
        backend: Backend,
        clock: Callable[[], float],
        pause: Pause = asyncio.sleep,
    ) -> None:
        self._settings = settings
        self._backend = backend
        self._clock = clock
        self._pause = pause
        self._sessions: dict[str, HeldRequest] = {}
        self._requests = 0
        self._door = Door(settings.max_in_flight)
        self._rebuilds = asyncio.Semaphore(REBUILDS_AT_ONCE)
        self._watchdog: Watchdog
        self._watching: asyncio.Task[None]
        self._accounting: Accounting
        self._check: SegmentCheck
        self._is_stopped = False

    async def start(self) -> None:
        """Start the backend and learn its size; raises EngineFailed."""
        try:
            facts = await self._backend.start()
            self._accounting = Accounting(
                max_sessions=self._settings.max_sessions,
                session_tokens=self._settings.session_tokens,
                kv_blocks=facts.kv_blocks,
                block_size=facts.block_size,
            )
        except Exception as error:
            await self._backend.stop()
            raise EngineFailed(f"the engine did not start: {error}") from error
        self._check = SegmentCheck(facts, self._settings.placeholder_ids)
        self._watchdog = Watchdog(self._settings.stuck_after_s, self._pause)
        work = self._watchdog.run(self._backend.dead())
        self._watching = asyncio.create_task(work)  # noqa: TID251 - stop() ends it

    async def stop(self) -> None:
        """Drop all sessions and end the backend."""
        self._is_stopped = True
        for key in list(self._sessions):
            await self.close(key)
        self._watching.cancel()
        await asyncio.wait({self._watching})
        await self._backend.stop()

    async def open(self, key: str) -> None:
        """Reserve a slot and memory; raises EngineFull, or NotOpen if there is such a session."""
        self._check_alive()
        self._accounting.reserve(key)
        self._sessions[key] = HeldRequest(key, lambda: self._new_stream(key), self._watchdog)

    def _new_stream(self, key: str) -> Stream:
        self._requests += 1
        return self._backend.stream(f"{key}.{self._requests}")

    async def append(
        self, key: str, segment: Segment, listener: Listener | None = None
    ) -> SegmentDone:
        """Feed a segment behind what the session holds, and sample.

        A listener is told of what comes while more is to follow; none of it counts before the end.

        Raises BadSegment, MemoryFull, SegmentFailed, SegmentCancelled, NotOpen or EngineDied; the
        memory is then as if it had not been tried. So it is if this call's task is cancelled.
        """
        session = self._session(key)
        self._check.segment(segment)
        arrived_s = self._clock()
        return await self._call(session, self._append(session, segment, arrived_s, listener))

    async def _append(
        self, session: HeldRequest, segment: Segment, arrived_s: float, listener: Listener | None
    ) -> SegmentDone:
        async with self._door.enter(session.key, segment.deadline_s):
            self._guard(session, segment)
            with self._watchdog.watching(f"a segment of session {session.key}") as watch:
                await session.dropped()
                fed_s = self._clock()
                sampled = await session.run(segment.pieces, segment.sampling, watch, listener)
        timing = segment_timing(arrived_s=arrived_s, fed_s=fed_s, outputs=sampled.outputs)
        return SegmentDone(segment.request_id, sampled.token_ids, sampled.stop, timing)

    def _guard(self, session: HeldRequest, segment: Segment) -> None:
        needed = session.tokens + length(segment.pieces) + segment.sampling.max_tokens
        if needed > self._settings.session_tokens:
            raise MemoryFull(
                f"the session would need {needed} positions, "
                f"{self._settings.session_tokens} are reserved for it"
            )

    def held(self, key: str) -> Pieces:
        """Return what the session's memory holds, or would after a rebuild."""
        return self._find(key).pieces

    def held_tokens(self, key: str) -> int:
        """Return how many positions that takes."""
        return self._find(key).tokens

    async def replace(self, key: str, pieces: Pieces) -> None:
        """Make the session's memory exactly `pieces`; they are fed before the next segment.

        Raises Busy, BadSegment, MemoryFull, NotOpen or EngineDied.
        """
        session = self._session(key)
        if session.calls:
            raise Busy("the session has a segment that runs or waits")
        self._check.pieces(pieces)
        if length(pieces) + REBUILD.max_tokens > self._settings.session_tokens:
            raise MemoryFull(
                f"{length(pieces)} positions are too many for a session that has "
                f"{self._settings.session_tokens}"
            )
        session.become(pieces)
        await session.dropped()

    async def prepare(self, key: str) -> None:
        """Rebuild the memory now, if it is to be rebuilt; all segments that wait go first.

        Raises what append does.
        """
        session = self._session(key)
        if session.is_to_be_rebuilt:
            await self._call(session, self._prepare(session))

    async def _prepare(self, session: HeldRequest) -> None:
        async with self._rebuilds, self._door.enter(session.key, math.inf):
            if not session.is_to_be_rebuilt:
                return  # an append has done it
            with self._watchdog.watching(f"a rebuild of session {session.key}") as watch:
                await session.dropped()
                await session.run((), REBUILD, watch)

    async def cancel(self, key: str) -> bool:
        """Drop what runs or waits for the session; return whether there was anything.

        When it returns, the engine does nothing any more for the session.
        """
        session = self._sessions.get(key)
        if session is None:
            return False
        calls = set(session.calls)
        await self._end_calls(session)
        return bool(calls)

    async def _end_calls(self, session: HeldRequest) -> None:
        calls = set(session.calls)
        for call in calls:
            call.cancel()
        if calls:
            await asyncio.wait(calls)
        await session.dropped()

    async def close(self, key: str) -> None:
        """Drop the session and all that the engine holds for it; one that is gone may be closed."""
        session = self._sessions.get(key)
        if session is None:
            return
        if session.closing is None:
            work = self._close(session)
            session.closing = asyncio.create_task(work)  # noqa: TID251 - ends by itself
        await asyncio.wait({session.closing})

    async def _close(self, session: HeldRequest) -> None:
        await self._end_calls(session)
        session.lose()
        await session.dropped()
        del self._sessions[session.key]
        self._accounting.release(session.key)

    def capacity(self) -> EngineCapacity:
        """Return what is left."""
        return EngineCapacity(
            max_sessions=self._accounting.max_sessions,
            open_sessions=self._accounting.sessions,
            kv_tokens=self._accounting.kv_tokens,
            kv_tokens_reserved=self._accounting.kv_tokens_reserved,
            kv_tokens_used=sum(session.tokens for session in self._sessions.values()),
        )

    async def died(self) -> str:
        """Return why the engine is dead or stuck, once it is."""
        return await asyncio.shield(self._watchdog.death)

    async def call_worker(self, method: str, *args: Any) -> list[Any]:
        """Call a method in each worker process and return what each returned.

        Raises WorkerFailed or EngineDied.
        """
        self._check_alive()
        call = asyncio.ensure_future(self._backend.call_worker(method, *args))
        try:
            with self._watchdog.watching(f"the worker's {method}"):
                await self._wait(call)
            return call.result()
        except (EngineDied, asyncio.CancelledError):
            raise
        except Exception as error:
            raise WorkerFailed(f"{method} failed in a worker: {error}") from error
        finally:
            call.cancel()

    def _find(self, key: str) -> HeldRequest:
        session = self._sessions.get(key)
        if session is None or session.closing is not None:
            raise NotOpen(f"session {key} is not open")
        return session

    def _session(self, key: str) -> HeldRequest:
        self._check_alive()
        return self._find(key)

    def _check_alive(self) -> None:
        if self._is_stopped:
            raise EngineDied("the engine has been stopped")
        if self._watchdog.death.done():
            raise EngineDied(self._watchdog.death.result())

    async def _wait(self, task: asyncio.Future[Any]) -> None:
        """Wait for `task`; raise EngineDied if the engine dies first."""
        death = self._watchdog.death
        await asyncio.wait({task, death}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise EngineDied(death.result())

    async def _call(self, session: HeldRequest, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(work)  # noqa: TID251 - ended here, or by cancel() or close()
        session.calls.add(task)
        task.add_done_callback(session.calls.discard)
        try:
            await self._wait(task)
        except asyncio.CancelledError:
            if task.done() and not task.cancelled() and task.exception() is None:
                session.revert()
            raise
        finally:
            task.cancel()
        return self._outcome(task)

    def _outcome(self, task: asyncio.Task[T]) -> T:
        if task.cancelled():
            raise SegmentCancelled("the segment was cancelled")
        error = task.exception()
        if error is None:
            return task.result()
        if isinstance(error, StreamBroken):
            raise SegmentFailed(f"the engine refused the segment: {error}") from error
        if isinstance(error, BackendDead):
            self._watchdog.declare_dead(str(error))
            raise EngineDied(str(error)) from error
        raise error
