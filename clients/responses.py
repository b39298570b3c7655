"""One handle per response, and the table that gives each its events."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator

from clients import events as ev
from clients.commands import REQUEST_ID
from clients.errors import EventsMissed, RequestRefused

IN_PROGRESS = "in_progress"


class ResponseHandle:
    """One answer of the assistant, as far as it has come in."""

    def __init__(self, created: ev.ResponseCreated) -> None:
        self.response_id = created.response_id
        self.status = IN_PROGRESS
        """in_progress, then completed, cancelled, failed, incomplete, or lost (`EventsLost`)."""
        self.reason = ""
        """Why it ended, from `status_details`."""
        self._events: list[ev.ResponseEvent] = [created]
        self._failure: Exception | None = None
        self._changed = asyncio.Event()

    @property
    def is_done(self) -> bool:
        """Whether `response.done` has come."""
        return self.status != IN_PROGRESS

    @property
    def events(self) -> tuple[ev.ResponseEvent, ...]:
        """Events so far, in wire order."""
        return tuple(self._events)

    @property
    def audio(self) -> bytes:
        """Audio so far, in the response's output format."""
        return b"".join(e.audio for e in self._events if isinstance(e, ev.AudioDelta))

    @property
    def transcript(self) -> str:
        """Text so far, spoken or written: the joined deltas."""
        deltas = (ev.TranscriptDelta, ev.TextDelta)
        return "".join(e.delta for e in self._events if isinstance(e, deltas))

    async def wait_done(self) -> "ResponseHandle":
        """Wait for `response.done` and return this handle. Raises when the client has failed."""
        while not self.is_done:
            await self._wait_changed()
        return self

    async def __aiter__(self) -> AsyncIterator[ev.ResponseEvent]:
        """Yield the response's events from its first to its `response.done`."""
        position = 0
        while True:
            while position < len(self._events):
                yield self._events[position]
                position += 1
            if self.is_done:
                return
            await self._wait_changed()

    async def _wait_changed(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._changed.clear()
        await self._changed.wait()

    def _add(self, event: ev.ResponseEvent) -> None:
        self._events.append(event)
        if isinstance(event, ev.ResponseDone):
            self.status, self.reason = event.status or "completed", event.reason
        self._changed.set()

    def _fail(self, failure: Exception) -> None:
        self._failure = failure
        self._changed.set()


_Claim = asyncio.Future[ResponseHandle]


class ResponseTable:
    """Sorts events by response, and responses by who asked for them.

    Whoever waited for a response when the connection was lost, and whose response may be among the
    events that are gone, is told so (`EventsMissed`).

    A response whose metadata names a request belongs to that request. A server that sends no
    metadata at all does not echo it either: there, the oldest open request gets the response. Any
    other goes to whoever waits for the next response, or is kept for the next who asks.
    """

    def __init__(self, *, bound: int) -> None:
        self._bound = bound
        self._handles: OrderedDict[str, ResponseHandle] = OrderedDict()
        self._requests: OrderedDict[str, _Claim] = OrderedDict()
        self._listeners: deque[_Claim] = deque()
        self._at_risk: list[_Claim] = []
        """Those who waited when the connection was lost."""
        self._unclaimed: deque[ResponseHandle] = deque(maxlen=bound)
        self._failure: Exception | None = None

    def ask(self, request_id: str) -> _Claim:
        """Return a future of the response that answers a `response.create`."""
        claim = self._new_claim()
        if not claim.done():
            self._requests[request_id] = claim
        return claim

    async def next(self) -> ResponseHandle:
        """Return the oldest response that nobody has asked for yet; wait for one if need be."""
        if self._unclaimed:
            return self._unclaimed.popleft()
        claim = self._new_claim()
        if not claim.done():
            self._listeners.append(claim)
        return await claim

    def deliver(self, event: ev.ServerEvent) -> None:
        """Take one event, of whatever kind."""
        match event:
            case ev.ResponseCreated():
                self._begin(event)
            case ev.ResponseEvent():
                handle = self._handles.get(event.response_id)
                if handle is not None:
                    handle._add(event)  # noqa: SLF001  # the table writes, everybody else reads
            case ev.ErrorEvent() if event.caused_by in self._requests:
                claim = self._requests.pop(event.caused_by)
                _resolve(claim, RequestRefused(event.code, event.message))
            case ev.ConnectionLost():
                self._at_risk = [*self._requests.values(), *self._listeners]
            case ev.EventsLost(first_seq=first, last_seq=last):
                for claim in self._at_risk:
                    _resolve(claim, EventsMissed(first, last))
            case _:
                pass

    def fail(self, failure: Exception) -> None:
        """Fail every unfinished response and everybody who waits for one."""
        self._failure = failure
        for claim in (*self._requests.values(), *self._listeners):
            _resolve(claim, failure)
        for handle in self._handles.values():
            if not handle.is_done:
                handle._fail(failure)  # noqa: SLF001  # as above

    def _begin(self, created: ev.ResponseCreated) -> None:
        handle = ResponseHandle(created)
        self._handles[handle.response_id] = handle
        self._forget_oldest()
        claim = self._claim_for(created)
        if claim is None:
            self._unclaimed.append(handle)
        else:
            claim.set_result(handle)

    def _claim_for(self, created: ev.ResponseCreated) -> _Claim | None:
        named = created.metadata.get(REQUEST_ID)
        if isinstance(named, str):
            return _open_claim(self._requests.pop(named, None))
        while not created.metadata and self._requests:
            claim = _open_claim(self._requests.popitem(last=False)[1])
            if claim is not None:
                return claim
        while self._listeners:
            claim = _open_claim(self._listeners.popleft())
            if claim is not None:
                return claim
        return None

    def _forget_oldest(self) -> None:
        """Keep at most `bound` finished responses; an unfinished one is never forgotten."""
        finished = [key for key, handle in self._handles.items() if handle.is_done]
        for key in finished[: max(0, len(finished) - self._bound)]:
            del self._handles[key]

    def _new_claim(self) -> _Claim:
        claim: _Claim = asyncio.get_running_loop().create_future()
        if self._failure is not None:
            _resolve(claim, self._failure)
        return claim


def _open_claim(claim: _Claim | None) -> _Claim | None:
    return None if claim is None or claim.done() else claim


def _resolve(claim: _Claim, failure: Exception) -> None:
    if not claim.done():
        claim.set_exception(failure)
        claim.exception()  # marks it as seen, so that an abandoned one is not logged
