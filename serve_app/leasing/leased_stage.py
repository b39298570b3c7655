"""One stage, leased for one session: its engine, its latch, and the watch over both.

Rule 1: the lease's stream is watched from the grant to its end; its last item, or its end without
        one, closes the latch.
Rule 2: a close shuts the latch first, then tells the stage, and tries again until the stage has
        confirmed or the stream has ended, which both mean that it holds nothing any more.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Any, Final

import ray
from ray.serve.handle import DeploymentHandle

from serve_app.leasing.latch import Latch
from serve_app.leasing.lease import LeaseEnd, LeaseEnded, LeaseGranted, LeaseRefused
from serve_app.leasing.stage_errors import let_go, stage_errors
from serve_app.logs.log_lines import say, trouble
from session.errors import (
    AdmissionRefused,
    DuplexError,
    StageContractBroken,
    StageError,
    StageUnavailable,
)
from session.fence import Fence
from stages.descriptor import Descriptor

log = logging.getLogger(__name__)

MOST_REFUSALS: Final = 4
"""How often a stage may refuse a lease before the session is turned away."""
FIRST_RETRY_S: Final = 0.1
LONGEST_RETRY_S: Final = 5.0

REASONS: Final = {
    LeaseEnd.CLOSED: "the session was closed there",
    LeaseEnd.GIVEN_BACK: "the lease was given back",
    LeaseEnd.EXPIRED: "the lease was not renewed in time",
    LeaseEnd.GATEWAY_LOST: "it believes that this gateway is dead",
    LeaseEnd.ENGINE_LOST: "its engine died",
}
_NOTHING_MORE: Final = object()


class LeasedStage:
    """What a session holds of one stage. `take_lease` makes it."""

    def __init__(self, granted: LeaseGranted, stream: Any, timeout_s: float) -> None:
        self.stage = granted.stage
        self.replica = granted.replica
        self.engine = granted.engine
        self.latch = Latch()
        self.lost: asyncio.Future[StageError] = asyncio.get_running_loop().create_future()
        """Set when the lease breaks by itself."""
        self.is_closing = False
        self._timeout_s = timeout_s
        self._stream = stream
        self._over = asyncio.Event()
        self._watch = asyncio.create_task(  # noqa: TID251 - ends with the lease's stream
            self._run_watch()
        )

    @property
    def is_over(self) -> bool:
        """Whether the stage holds nothing of the session any more."""
        return self._over.is_set()

    async def call(self, method: Any, *arguments: Any) -> Any:
        """Call a method of the engine and return its result."""
        return (await self._call(_RemoteCall(method, arguments)))[0]

    async def call_for_two(self, method: Any, *arguments: Any) -> tuple[Any, Any]:
        """Call a method with two results; the second comes as a reference, not looked into."""
        result, second = await self._call(_RemoteCall(method, arguments, num_returns=2))
        return result, second

    async def stream(self, method: Any, *arguments: Any) -> AsyncGenerator[Any, None]:
        """Stream the items of a call; leaving the stream cancels the call.

        The time limit is on each item.
        """
        self.latch.check()
        items = method.options(num_returns="streaming").remote(*arguments)
        try:
            while True:
                with stage_errors(self.stage):
                    item = await self.latch.call(
                        lambda: _next_of(items), abandon=_nothing, timeout_s=self._timeout_s
                    )
                if item is _NOTHING_MORE:
                    return
                yield item
        finally:
            # Dropping the generator does not stop the other side.
            ray.cancel(items)

    def lose(self, error: StageError) -> None:
        """The lease is broken: end every call, and tell who waits for that."""
        self.latch.close(error)
        if not (self.is_closing or self.lost.done()):
            self.lost.set_result(error)

    def give_back(self) -> None:
        """Let go of the lease; the stage then releases the session by itself."""
        self._begin_close()
        let_go(self._stream)

    async def close(self, fence: Fence) -> None:
        """Release the session at the stage; returns when it holds nothing any more."""
        self._begin_close()
        retry_s = FIRST_RETRY_S
        while not self._over.is_set():
            try:
                with stage_errors(self.stage):
                    closing = _answer(self.engine.close.remote(fence))
                    await asyncio.wait_for(closing, self._timeout_s)
            except StageError as error:
                facts = trouble(error, stage=self.stage)
                say(log, logging.WARNING, "close failed, will try again", fence, facts)
                await _wait(self._over, retry_s)
                retry_s = min(2 * retry_s, LONGEST_RETRY_S)
            else:
                break
        # The stage has confirmed; the end of the stream follows at once.
        if not await _wait(self._over, self._timeout_s):
            let_go(self._stream)

    def _begin_close(self) -> None:
        self.is_closing = True
        self.latch.close(StageUnavailable(f"the session is closed at {self.stage}"))

    async def _call(self, call: "_RemoteCall") -> tuple[Any, ...]:
        with stage_errors(self.stage):
            result = await self.latch.call(
                call.submit, abandon=call.abandon, timeout_s=self._timeout_s
            )
        return (result, *call.refs[1:])

    async def _run_watch(self) -> None:
        why = "its replica ended the lease without a word"
        try:
            with stage_errors(self.stage):
                async for item in self._stream:
                    if isinstance(item, LeaseEnded):
                        why = REASONS[item.end]
                        self._lose_because(why)
        except DuplexError as error:
            why = error.message
        finally:
            self._lose_because(why)
            self._over.set()

    def _lose_because(self, why: str) -> None:
        self.lose(StageUnavailable(f"{self.stage} lost the session: {why}"))


class _RemoteCall:
    """One call of an actor's method."""

    def __init__(self, method: Any, arguments: tuple[Any, ...], num_returns: int = 1) -> None:
        self._method = method if num_returns == 1 else method.options(num_returns=num_returns)
        self._arguments = arguments
        self.refs: list[Any] = []

    async def submit(self) -> Any:
        """Send the call and wait for its first result."""
        sent = self._method.remote(*self._arguments)
        self.refs = sent if isinstance(sent, list) else [sent]
        return await self.refs[0]

    def abandon(self) -> None:
        """Nobody waits for the call any more."""
        if self.refs:
            ray.cancel(self.refs[0])


async def take_lease(
    handle: DeploymentHandle[Any],
    fence: Fence,
    witness: Any,
    descriptor: Descriptor,
    *,
    timeout_s: float,
) -> LeasedStage:
    """Lease a stage for a session, at another replica if the first one is full.

    Raises AdmissionRefused, StageUnavailable or StageContractBroken.
    """
    refused_by: list[str] = []
    while True:
        stream: Any = handle.options(stream=True).lease.remote(
            fence.session_id, fence.incarnation, witness, descriptor
        )
        granted = await _first_of(stream, handle.deployment_name, timeout_s)
        if isinstance(granted, LeaseRefused):
            may_ask_again = isinstance(granted.error, AdmissionRefused | StageUnavailable)
            # The router takes the less loaded replica, so the same one twice means that all are.
            if not may_ask_again or granted.replica in refused_by:
                raise granted.error
            refused_by.append(granted.replica)
            if len(refused_by) == MOST_REFUSALS:
                raise granted.error
            continue
        if granted.descriptor != descriptor:
            let_go(stream)
            raise StageContractBroken(f"{granted.stage} runs {granted.descriptor.model_id}")
        return LeasedStage(granted, stream, timeout_s)


async def _first_of(stream: Any, stage: str, timeout_s: float) -> LeaseGranted | LeaseRefused:
    """Return the first item of a lease; give the lease back when that does not come."""
    try:
        with stage_errors(stage):
            item = await asyncio.wait_for(anext(stream), timeout_s)
    except DuplexError as error:
        let_go(stream)
        raise StageUnavailable(f"{stage} does not answer: {error.message}") from error
    except StopAsyncIteration:
        raise StageUnavailable(f"{stage} ended the lease at once") from None
    except asyncio.CancelledError:
        let_go(stream)
        raise
    if not isinstance(item, LeaseGranted | LeaseRefused):
        raise StageContractBroken(f"{stage} began a lease with {type(item).__name__}")
    return item


async def _answer(ref: Any) -> Any:
    return await ref


async def _next_of(items: Any) -> Any:
    """Return the next item of an actor's stream, or the mark that there is none."""
    try:
        ref = await anext(items)
    except StopAsyncIteration:
        return _NOTHING_MORE
    return await ref


def _nothing() -> None:
    """Leave it to the end of the stream to cancel the call."""


async def _wait(event: asyncio.Event, timeout_s: float) -> bool:
    """Wait for an event; return whether it came in time."""
    try:
        await asyncio.wait_for(event.wait(), timeout_s)
    except TimeoutError:
        return False
    return True
