"""The door in front of a model: fence, order, idempotency and cancellation, for every plugin alike.

Rule 1: a call is judged before anything else. Fences are compared here and in the sessions held
        for this door (`stages.held_sessions`), and nowhere else in the stages.
Rule 2: an operation that was begun is never begun again; repeating it returns the first result.
        Only one that failed may be tried once more.
Rule 3: at most one append, speak or configure of a session is inside the model. What a cancel
        left behind is waited for before the next one enters.
Rule 4: a cancel advances the fence first and stops the model after that. Nothing moves it back.
Rule 5: what a model could not release stays bound, refuses every call, and is released by a later
        close.
"""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any, Final

from session.config import RuntimeConfig
from session.errors import StageContractBroken, StageFailed, StageRefused
from session.fence import Fence
from session.ids import OperationId, RequestId, SessionId
from session.unit import SAMPLE_BYTES, Decision, SpeechChunk, Unit
from stages.contract import Appended, Released, Speech, Stage0Model, Stage1Model
from stages.held_sessions import Binding, Epoch, HeldSessions
from stages.model_call import outcome
from stages.stage_time import InModel, Now, Stopwatch, start

MAX_UNIT_BYTES: Final = 16_777_216
MAX_ARGUMENTS_CHARS: Final = 65_536
"""Arguments of a function call, which must fit into one server event."""
"""Largest PCM of one unit: the default bound on a session's pending input."""


class Stage0Door:
    """Stage0 behind its door; keeps `cache_size` finished operations of each session.

    With a clock, `now`, answers say where their time went.
    """

    def __init__(self, model: Stage0Model, *, cache_size: int, now: Now | None = None) -> None:
        self._model = model
        self._now = now
        self._cache_size = cache_size
        self._held = HeldSessions(model, model.interrupt)

    @property
    def bound_sessions(self) -> int:
        """Number of sessions the model holds something for."""
        return len(self._held)

    def fence_of(self, session_id: SessionId) -> Fence | None:
        """Return the current fence of a session that is still bound."""
        return self._held.fence_of(session_id)

    def holds(self, fence: Fence) -> bool:
        """Whether `fence` is the present one of a session that is bound and not being released."""
        return self._held.holds(fence)

    async def open(self, fence: Fence, runtime: RuntimeConfig) -> None:
        """Bind a session. Raises StageRefused for an incarnation that is not newer."""
        await self._held.open(fence, runtime)

    async def append(
        self,
        fence: Fence,
        *,
        seq: int,
        operation_id: OperationId,
        unit: Unit,
        config_generation: int,
    ) -> Appended:
        """Give one unit to the model, once."""
        binding = self._held.admit(fence)
        epoch = binding.epoch
        task = binding.operations.get(operation_id)
        if task is None:
            task = self._begin(binding, seq, operation_id, unit, config_generation)
        waits: set[asyncio.Future[Any]] = {task, epoch.over}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if epoch.is_over:
            raise StageRefused("cancelled while the model worked on it")
        return outcome(task)

    async def configure(self, fence: Fence, runtime: RuntimeConfig, generation: int) -> None:
        """Acknowledge settings that take effect at the next append."""
        await self._held.configure(fence, runtime, generation)

    async def cancel(
        self, cancelled: Fence, current: Fence, heard: str, consumed_seq: int | None = None
    ) -> Released:
        """Advance to `current` and drop what `cancelled` held. Idempotent; late ones do nothing.

        A unit beyond `consumed_seq` that is finished here counts as not consumed; None: all count.
        """
        return await self._held.cancel(cancelled, current, heard, consumed_seq)

    async def close(self, fence: Fence) -> Released:
        """Release everything of this incarnation. Idempotent."""
        return await self._held.close(fence)

    def _begin(
        self, binding: Binding, seq: int, operation_id: OperationId, unit: Unit, generation: int
    ) -> asyncio.Task[Appended]:
        """Reserve the unit's place and start the model on it."""
        epoch = binding.epoch
        if epoch.calls:
            raise StageRefused("an append of this session is still running")
        epoch.check_next(seq)
        epoch.last_seq, epoch.may_repeat = seq, True
        _check_unit(unit)
        if generation not in binding.settings:
            raise StageRefused(f"this stage does not have settings {generation}")
        epoch.attempts += 1
        request = request_id(binding.fence, seq, epoch.attempts)
        work = self._run(binding, epoch, request, unit, generation, start(self._now))
        task = binding.start_in(epoch, work, is_cut=False)
        binding.operations[operation_id] = task
        task.add_done_callback(lambda done: self._keep(binding, operation_id, done))
        return task

    async def _run(
        self,
        binding: Binding,
        epoch: Epoch,
        request: RequestId,
        unit: Unit,
        generation: int,
        watch: Stopwatch | None,
    ) -> Appended:
        await binding.enter()
        try:
            if epoch.is_over:
                raise StageRefused("cancelled before the model began")
            await self._apply(binding, generation)
            inside = None if watch is None else watch.entered()
            appended = await self._model.append(binding.session_id, unit, request_id=request)
            _check_appended(appended, request)
            epoch.may_repeat = False
            if inside is None:
                return appended
            result = appended.result
            return replace(appended, result=replace(result, time=inside.until_now(result.metrics)))
        finally:
            binding.turnstile.release()

    async def _apply(self, binding: Binding, generation: int) -> None:
        """Give the model exactly the settings that were in force when the unit was accepted."""
        if generation != binding.generation:
            await self._model.configure(binding.session_id, binding.settings[generation])
            binding.generation = generation
        binding.used_generation = max(binding.used_generation, generation)
        for old in [known for known in binding.settings if known < generation]:
            del binding.settings[old]

    def _keep(
        self, binding: Binding, operation_id: OperationId, task: asyncio.Task[Appended]
    ) -> None:
        """Keep a result for repeats, and forget a failure, which may be tried again."""
        if task.cancelled() or task.exception() is not None:
            binding.operations.pop(operation_id, None)
        while len(binding.operations) > self._cache_size:
            binding.operations.popitem(last=False)


class Stage1Door:
    """Stage1 behind its door.

    With a clock, `now`, the first chunk of a unit says where its time went.
    """

    def __init__(self, model: Stage1Model, *, now: Now | None = None) -> None:
        self._model = model
        self._now = now
        self._held = HeldSessions(model, self._interrupt)

    @property
    def bound_sessions(self) -> int:
        """Number of sessions the model holds something for."""
        return len(self._held)

    def fence_of(self, session_id: SessionId) -> Fence | None:
        """Return the current fence of a session that is still bound."""
        return self._held.fence_of(session_id)

    def holds(self, fence: Fence) -> bool:
        """Whether `fence` is the present one of a session that is bound and not being released."""
        return self._held.holds(fence)

    async def open(self, fence: Fence, runtime: RuntimeConfig) -> None:
        """Bind a session. Raises StageRefused for an incarnation that is not newer."""
        await self._held.open(fence, runtime)

    async def speak(
        self, fence: Fence, *, seq: int, speech: Speech
    ) -> AsyncGenerator[SpeechChunk, None]:
        """Stream one unit's speech; ends early, without error, when its fence is cancelled.

        The model runs ahead of a slow consumer, at most to the end of this unit's speech.
        """
        binding = self._held.admit(fence)
        epoch = binding.epoch
        epoch.check_later(seq)
        epoch.last_seq = seq
        made: asyncio.Queue[SpeechChunk | None] = asyncio.Queue()
        work = self._run(binding, epoch, speech, made, start(self._now))
        task = binding.start_in(epoch, work, is_cut=True)
        task.add_done_callback(lambda _: made.put_nowait(None))
        try:
            while (chunk := await made.get()) is not None and not epoch.is_over:
                yield chunk
            if not epoch.is_over:
                outcome(task)
        finally:
            task.cancel()

    async def configure(self, fence: Fence, runtime: RuntimeConfig, generation: int) -> None:
        """Acknowledge settings that take effect at the next unit."""
        await self._held.configure(fence, runtime, generation)

    async def cancel(
        self, cancelled: Fence, current: Fence, heard: str, consumed_seq: int | None = None
    ) -> Released:
        """Advance to `current` and stop what `cancelled` was speaking."""
        return await self._held.cancel(cancelled, current, heard, None)

    async def close(self, fence: Fence) -> Released:
        """Release everything of this incarnation. Idempotent."""
        return await self._held.close(fence)

    async def _run(
        self,
        binding: Binding,
        epoch: Epoch,
        speech: Speech,
        made: asyncio.Queue[SpeechChunk | None],
        watch: Stopwatch | None,
    ) -> None:
        await binding.enter()
        try:
            if epoch.is_over:
                return
            inside = None if watch is None else watch.entered()
            stream = self._model.speak(binding.session_id, speech)
            try:
                async for chunk in stream:
                    made.put_nowait(chunk if inside is None else _timed(chunk, inside))
                    inside = None
            finally:
                if isinstance(stream, AsyncGenerator):
                    await stream.aclose()
        finally:
            binding.turnstile.release()

    async def _interrupt(self, session_id: SessionId, heard: str, *, undoes_unit: bool) -> None:
        del heard, undoes_unit  # what was heard concerns the half that remembers
        await self._model.interrupt(session_id)


def _check_unit(unit: Unit) -> None:
    """Refuse a unit that no model could make sense of."""
    size = len(unit.pcm)
    if size % SAMPLE_BYTES:
        raise StageFailed(f"bad unit: {size} bytes are not whole 16-bit samples")
    if size > MAX_UNIT_BYTES:
        raise StageFailed(f"bad unit: {size} bytes, the most is {MAX_UNIT_BYTES}")
    if not (unit.pcm or unit.text or unit.closes_input):
        raise StageFailed("bad unit: it has neither audio nor text, and closes nothing")
    if (unit.is_fresh or unit.is_bare) and not unit.closes_input:
        raise StageFailed("bad unit: it asks for an answer and does not close the input")


def _timed(first: SpeechChunk, inside: InModel) -> SpeechChunk:
    return replace(first, time=inside.until_now(first.metrics))


def request_id(fence: Fence, seq: int, attempt: int) -> RequestId:
    """Return the name of one attempt at one unit; no other attempt in any life has it."""
    at = f"{fence.incarnation}.{fence.epoch}.{fence.turn}"
    return RequestId(f"{fence.session_id}/{at}/{seq}.{attempt}")


def _check_appended(appended: Appended, request: RequestId) -> None:
    """Refuse an answer to something else, or one that contradicts itself."""
    if appended.request_id not in (None, request):
        raise StageContractBroken(
            f"the model answered {appended.request_id} when it was asked for {request}"
        )
    result = appended.result
    if result.speech_follows is not (appended.speech is not None):
        raise StageContractBroken(
            "the model must hand over speech exactly when its result says that speech follows"
        )
    if result.decision is Decision.LISTEN and (
        result.text or result.speech_follows or result.calls
    ):
        raise StageContractBroken("a model that listens says nothing")
    if any(len(call.arguments) > MAX_ARGUMENTS_CHARS for call in result.calls):
        raise StageFailed(f"a function call of more than {MAX_ARGUMENTS_CHARS} characters")
