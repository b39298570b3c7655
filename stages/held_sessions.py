"""The sessions a stage holds: fence, epoch, settings, and who is inside the model.

`stages.binding` has the rules; this is what Stage0's door and Stage1's door have in common.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Coroutine
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

from session.config import RuntimeConfig
from session.errors import StageRefused
from session.fence import Fence, FenceVerdict
from session.ids import OperationId, SessionId
from stages.contract import Appended, Released, Stage0Model, Stage1Model
from stages.model_call import cancel_all, finish, start_call

T = TypeVar("T")

KEPT_INCARNATIONS: Final = 4096
"""Sessions that are gone and whose incarnation is still remembered."""
FIRST_GENERATION: Final = 0
"""Generation of the settings that came with the open."""


class Interrupt(Protocol):
    """How a door stops its model."""

    async def __call__(self, session_id: SessionId, heard: str, *, undoes_unit: bool) -> None:
        """Drop the answer in progress."""
        ...


class Epoch:
    """One stretch between two cancellations: its order, and a flag that wakes who waits in it."""

    def __init__(self) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.last_seq: int | None = None
        self.attempts = 0
        """Appends that were begun, failed ones too."""
        self.may_repeat = False
        """The last number was tried and not consumed, so it may come again."""
        self.calls: set[asyncio.Task[Any]] = set()
        """Appends or speeches that still run."""
        self.cut: set[asyncio.Task[Any]] = set()
        """Those of them that are cancelled when the epoch ends."""

    @property
    def is_over(self) -> bool:
        """Whether a cancellation or the session's release has ended it."""
        return self.over.done()

    def has_finished_beyond(self, seq: int | None) -> bool:
        """Whether a unit after `seq` has been finished, so that its answer is on its way."""
        if seq is None or self.last_seq is None or self.calls or self.may_repeat:
            return False
        return self.last_seq > seq

    def check_next(self, seq: int) -> None:
        """Refuse a number that does not directly follow; an epoch may begin anywhere."""
        if self.last_seq is None or seq == self.last_seq + 1:
            return
        if seq == self.last_seq and self.may_repeat:
            return
        raise StageRefused(f"unit {seq} is out of order: unit {self.last_seq} came last")

    def check_later(self, seq: int) -> None:
        """Refuse a number that is not above every earlier one."""
        if self.last_seq is not None and seq <= self.last_seq:
            raise StageRefused(f"speech {seq} is out of order: {self.last_seq} came last")


class Binding:
    """One session's hold on a model."""

    def __init__(self, fence: Fence, runtime: RuntimeConfig) -> None:
        self.fence = fence
        self.epoch = Epoch()
        self.is_open = False
        self.is_closing = False
        self.turnstile = asyncio.Lock()
        """Held by the one call that is inside the model."""
        self.tasks: set[asyncio.Task[Any]] = set()
        """Calls into the model that still run, whoever asked for them."""
        self.interrupts: set[asyncio.Task[None]] = set()
        self.operations: OrderedDict[OperationId, asyncio.Task[Appended]] = OrderedDict()
        self.settings: dict[int, RuntimeConfig] = {FIRST_GENERATION: runtime}
        self.generation = FIRST_GENERATION
        """Generation that the model has now."""
        self.used_generation = FIRST_GENERATION
        """Highest generation that an append has used."""
        self.release: asyncio.Task[Released] | None = None

    @property
    def session_id(self) -> SessionId:
        """Name under which the model knows the session."""
        return self.fence.session_id

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin a call into the model that this binding answers for."""
        task = start_call(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def start_in(
        self, epoch: Epoch, work: Coroutine[Any, Any, T], *, is_cut: bool
    ) -> asyncio.Task[T]:
        """Begin a call of `epoch`, whose end makes it worthless and, if `is_cut`, cancels it."""
        task = self.start(work)
        for calls in (epoch.calls, epoch.cut) if is_cut else (epoch.calls,):
            calls.add(task)
            task.add_done_callback(calls.discard)
        return task

    def advance(self, fence: Fence) -> int:
        """Enter the epoch of `fence`; return how many calls of the old one were running."""
        ended, self.epoch, self.fence = self.epoch, Epoch(), fence
        ended.over.set_result(None)
        calls = len(ended.calls)
        for task in ended.cut:
            task.cancel()
        return calls

    async def enter(self) -> None:
        """Take the turnstile once the model has been stopped from what it was told to drop."""
        await self.turnstile.acquire()
        try:
            while self.interrupts:
                await asyncio.wait(self.interrupts)
        except BaseException:
            self.turnstile.release()
            raise


class HeldSessions:
    """The sessions a stage holds: everything that is the same at both doors."""

    def __init__(
        self,
        model: Stage0Model | Stage1Model,
        interrupt: Interrupt,
    ) -> None:
        self._model = model
        self._interrupt = interrupt
        self._bound: dict[SessionId, Binding] = {}
        self._incarnations: OrderedDict[SessionId, int] = OrderedDict()
        """Highest life seen of each session, oldest first."""

    def __len__(self) -> int:
        return len(self._bound)

    def fence_of(self, session_id: SessionId) -> Fence | None:
        """Return the current fence of a session that is still bound."""
        binding = self._bound.get(session_id)
        return None if binding is None else binding.fence

    def holds(self, fence: Fence) -> bool:
        """Whether `fence` is the present one of a session that is bound and not being released."""
        binding = self._bound.get(fence.session_id)
        if binding is None or binding.is_closing:
            return False
        return binding.fence.judge(fence) is FenceVerdict.CURRENT

    def admit(self, fence: Fence) -> Binding:
        """Return the binding that `fence` may use now."""
        binding = self._bound.get(fence.session_id)
        if binding is None or not binding.is_open or binding.is_closing:
            raise StageRefused("the session is not open at this stage")
        verdict = binding.fence.judge(fence)
        if verdict is not FenceVerdict.CURRENT:
            raise StageRefused(
                f"the fence is {verdict.value}: epoch {fence.epoch} of life {fence.incarnation} "
                f"came, epoch {binding.fence.epoch} of life {binding.fence.incarnation} holds"
            )
        return binding

    async def open(self, fence: Fence, runtime: RuntimeConfig) -> None:
        """Bind a session whose earlier lives are all over."""
        session_id = fence.session_id
        before = self._incarnations.get(session_id)
        if before is not None and fence.incarnation <= before:
            raise StageRefused(f"life {fence.incarnation} is not newer than {before}")
        if session_id in self._bound:
            raise StageRefused(f"life {before} of the session has not been released yet")
        binding = self._bound[session_id] = Binding(fence, runtime)
        self._remember(session_id, fence.incarnation)
        await finish(binding.start(self._open_model(binding, runtime, before)))

    async def _open_model(
        self, binding: Binding, runtime: RuntimeConfig, before: int | None
    ) -> None:
        try:
            await self._model.open(binding.session_id, runtime)
            binding.is_open = True
        finally:
            if not binding.is_open:
                self._forget_failed_open(binding.session_id, before)

    def _forget_failed_open(self, session_id: SessionId, before: int | None) -> None:
        del self._bound[session_id]
        if before is None:
            del self._incarnations[session_id]
        else:
            self._incarnations[session_id] = before

    def _remember(self, session_id: SessionId, incarnation: int) -> None:
        self._incarnations[session_id] = incarnation
        self._incarnations.move_to_end(session_id)
        surplus = max(0, len(self._incarnations) - KEPT_INCARNATIONS)
        for old in list(islice(self._incarnations, surplus)):
            if old not in self._bound:
                del self._incarnations[old]

    async def configure(self, fence: Fence, runtime: RuntimeConfig, generation: int) -> None:
        """Give the model new settings between two units; the appends of `generation` use them."""
        binding = self.admit(fence)
        if generation < binding.used_generation:
            raise StageRefused(
                f"settings {generation} are stale: settings {binding.used_generation} are in use"
            )
        await finish(binding.start(self._configure(binding, runtime, generation)))

    async def _configure(self, binding: Binding, runtime: RuntimeConfig, generation: int) -> None:
        await binding.enter()
        try:
            await self._model.configure(binding.session_id, runtime)
            binding.settings[generation] = runtime
            binding.generation = generation
        finally:
            binding.turnstile.release()

    async def cancel(
        self, cancelled: Fence, current: Fence, heard: str, consumed_seq: int | None
    ) -> Released:
        """Advance to `current`, void what the old epoch runs, and stop the model."""
        _check_succession(cancelled, current)
        binding = self._bound.get(cancelled.session_id)
        if binding is None or binding.is_closing:
            return Released()
        if binding.fence.judge(current) is not FenceVerdict.UNKNOWN:
            return Released()  # late or repeated: this stage is there already, or further
        if current.incarnation != binding.fence.incarnation:
            raise StageRefused(f"life {current.incarnation} has not been opened at this stage")
        undoes_unit = binding.epoch.has_finished_beyond(consumed_seq)
        calls = binding.advance(current)
        if binding.is_open:
            stop = binding.start(self._stop(binding.session_id, heard, undoes_unit))
            binding.interrupts.add(stop)
            stop.add_done_callback(binding.interrupts.discard)
            await finish(stop)
        return Released(calls=calls)

    async def _stop(self, session_id: SessionId, heard: str, undoes_unit: bool) -> None:
        await self._interrupt(session_id, heard, undoes_unit=undoes_unit)

    async def close(self, fence: Fence) -> Released:
        """Release everything of this life of the session."""
        binding = self._bound.get(fence.session_id)
        if binding is None or fence.incarnation != binding.fence.incarnation:
            return Released()
        # A close from a later epoch than ours means that a cancel was lost on the way: it holds.
        if binding.fence.judge(fence) is FenceVerdict.STALE:
            raise StageRefused(f"the close is stale: epoch {binding.fence.epoch} holds")
        if binding.release is None or binding.release.done():
            binding.release = start_call(self._release(binding))
        return await finish(binding.release)

    async def _release(self, binding: Binding) -> Released:
        binding.is_closing = True
        if not binding.is_open and binding.tasks:
            await asyncio.wait(binding.tasks)
        if not binding.is_open:
            return Released()  # it never opened, and took itself out
        calls = binding.advance(binding.fence)
        await cancel_all(binding.tasks)
        await self._model.close(binding.session_id)
        del self._bound[binding.session_id]
        return Released(sessions=1, calls=calls)


def _check_succession(cancelled: Fence, current: Fence | None) -> None:
    """Refuse a cancel that does not say which later epoch of the same life holds now."""
    if current is None:
        raise StageRefused("a cancel must name the fence that holds from now on")
    if (current.session_id, current.incarnation) != (cancelled.session_id, cancelled.incarnation):
        raise StageRefused("a cancel must stay within one life of one session")
    if current.epoch <= cancelled.epoch:
        raise StageRefused(f"epoch {current.epoch} does not follow epoch {cancelled.epoch}")
