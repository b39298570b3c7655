"""The stage contract: what every model's Stage0 and Stage1 offer.

A plugin implements the two *model* protocols, which know nothing of fences. `stages.binding` puts
the door in front of them: fence check, order, idempotency, cancellation. Gateway and engine
actors speak to the door only.

Errors: a model raises `session.errors.StageFailed` for a unit it can not process (the session
lives) and UnsupportedOption for a setting that only it can judge, such as the name of a voice;
anything else it raises is a fault of the plugin and is reported as StageFailed too.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from session.config import RuntimeConfig
from session.fence import Fence
from session.ids import OperationId, RequestId, SessionId
from session.unit import SpeechChunk, Unit, UnitResult
from stages.descriptor import Descriptor


@dataclass(frozen=True, slots=True)
class Speech:
    """Stage0's hand-over to Stage1 for one SPEAK unit. The gateway passes it on unopened."""

    text: str
    segment_end: bool
    turn_end: bool
    token_ids: tuple[int, ...] = ()
    hidden: Any = None
    """float32 array [len(token_ids), hidden] for models that condition on hidden states."""
    voice: str | None = None
    """Voice of this answer alone; None: the session's."""
    speed: float | None = None
    """Speed of this answer alone, where 1 is the voice's own; None: the session's."""
    turn_start: bool = False
    """Nothing of this turn has been spoken yet, whatever became of the turn before."""


@dataclass(frozen=True, slots=True)
class Appended:
    """Stage0's whole answer to one unit; `speech` is None unless the result says it follows."""

    result: UnitResult
    speech: Speech | None
    request_id: RequestId | None = None
    """The request that this answers, where the model has requests of its own to tell apart."""


@dataclass(frozen=True, slots=True)
class Released:
    """What a close or cancel freed. Closing twice frees nothing the second time."""

    sessions: int = 0
    calls: int = 0


@dataclass(frozen=True, slots=True)
class TokenMemory:
    """Positions of a model's memory."""

    used: int
    """What open sessions hold now."""
    reserved: int
    """What is set aside for open sessions."""
    capacity: int


@runtime_checkable
class RemembersTokens(Protocol):
    """A model, of either half, whose sessions hold positions of one bounded memory."""

    def token_memory(self) -> TokenMemory:
        """Return how full it is; once the model is warm."""
        ...


class Stage0Model(Protocol):
    """A model's hearing and deciding half. One instance serves all sessions of a stage.

    All methods are coroutines that must not block the event loop: compute runs in threads. The
    door never runs two appends of one session at once. `interrupt` may come while an append runs;
    `close` comes after the calls that still ran have been cancelled, but a thread of theirs may go
    on computing for a while.
    """

    async def open(self, session_id: SessionId, runtime: RuntimeConfig) -> None:
        """Reserve what the session needs; on failure nothing stays."""
        ...

    async def append(self, session_id: SessionId, unit: Unit, *, request_id: RequestId) -> Appended:
        """Consume one unit and decide.

        Whatever the model starts for this unit bears `request_id`, and output under any other
        name is not this unit's. When it raises, the unit counts as not consumed.

        Its `messages` are remembered in front of its own input and ask for nothing; an interruption
        of the answer does not take them back. One that `is_bare` is answered from the instructions
        and what is remembered, if the model can do that. The answer to one that `is_fresh` sees its
        `messages` and `text` alone, and what is remembered is the same before and after it. A model
        is given messages and fresh units only where its profile says that it takes them.

        One that `is_heard_only` is LISTEN without `turn_end`, whatever was said, with its words in
        `heard` if the model tells words; the next unit that closes the input answers it.

        A unit that `closes_input` and leaves nothing to answer is LISTEN with `turn_end`. Its
        `options` hold for the answer that it asks for and for nothing after that: not when the
        answer is over, not when it was interrupted, and not when there is none. Where
        `max_output_tokens` comes before the end of what there is to say, the last unit `is_cut`.
        """
        ...

    async def configure(self, session_id: SessionId, runtime: RuntimeConfig) -> None:
        """Replace the settings; called between units only. Raises to refuse, changing nothing.

        The recording of a voice holds from the open on, and does not come again.
        """
        ...

    async def interrupt(self, session_id: SessionId, heard: str, *, undoes_unit: bool) -> None:
        """Drop the answer in progress; the user heard only `heard` of it.

        May come during an append: that unit then counts as not consumed and its audio will be
        appended again. With `undoes_unit`, which never comes during an append, the same holds for
        the unit that was appended last.
        """
        ...

    async def close(self, session_id: SessionId) -> None:
        """Release everything; unknown sessions are no error."""
        ...

    async def warm_up(self) -> None:
        """Load weights and run once, so that the first user does not wait."""
        ...

    async def died(self) -> str:
        """Return why the model can serve nobody any more, once that is so; never otherwise."""
        ...


class Stage1Model(Protocol):
    """A model's speaking half. The same holds for its calls.

    The door leaves the iterator of `speak` when its fence is cancelled and calls `interrupt` then.
    """

    async def open(self, session_id: SessionId, runtime: RuntimeConfig) -> None:
        """Reserve voice state; on failure nothing stays."""
        ...

    def speak(self, session_id: SessionId, speech: Speech) -> AsyncIterator[SpeechChunk]:
        """Yield the chunks of one unit's speech.

        Joined transcripts equal `speech.text` exactly, and each chunk but a final empty one has
        audio. The last chunk carries the flags of `speech`. Voice state continues within a turn
        and resets after `turn_end`.
        """
        ...

    async def configure(self, session_id: SessionId, runtime: RuntimeConfig) -> None:
        """Replace the settings between units. Raises to refuse, changing nothing."""
        ...

    async def interrupt(self, session_id: SessionId) -> None:
        """Stop speaking and reset the voice state of the turn."""
        ...

    async def close(self, session_id: SessionId) -> None:
        """Release everything; unknown sessions are no error."""
        ...

    async def warm_up(self) -> None:
        """Load weights and run once."""
        ...

    async def died(self) -> str:
        """Return why the model can serve nobody any more, once that is so; never otherwise."""
        ...


async def lives_with_its_process() -> str:
    """Answer `died` for a model that has nothing of its own which could die."""
    await asyncio.Event().wait()
    raise AssertionError("nobody sets this event")


class Stage0(Protocol):
    """Stage0 as its callers see it: behind the door."""

    async def open(self, fence: Fence, runtime: RuntimeConfig) -> None:
        """Bind a session. Raises StageRefused for an incarnation that is not newer."""
        ...

    async def append(
        self,
        fence: Fence,
        *,
        seq: int,
        operation_id: OperationId,
        unit: Unit,
        config_generation: int,
    ) -> Appended:
        """Fence check, then a repeated operation's first result, then order, then the model."""
        ...

    async def configure(self, fence: Fence, runtime: RuntimeConfig, generation: int) -> None:
        """Acknowledge settings that take effect at the next append."""
        ...

    async def cancel(
        self, cancelled: Fence, current: Fence, heard: str, consumed_seq: int | None = None
    ) -> Released:
        """Advance to `current` and drop what `cancelled` held. Idempotent; late ones do nothing.

        A unit beyond `consumed_seq` that is finished here counts as not consumed, for the gateway
        has not dealt with its answer and will append its audio again. None: all count.
        """
        ...

    async def close(self, fence: Fence) -> Released:
        """Release everything of this incarnation. Idempotent."""
        ...


class Stage1(Protocol):
    """Stage1 as its callers see it: behind the door."""

    async def open(self, fence: Fence, runtime: RuntimeConfig) -> None:
        """Bind a session. Raises StageRefused for an incarnation that is not newer."""
        ...

    def speak(self, fence: Fence, *, seq: int, speech: Speech) -> AsyncIterator[SpeechChunk]:
        """Stream one unit's speech; ends early, without error, when its fence is cancelled."""
        ...

    async def configure(self, fence: Fence, runtime: RuntimeConfig, generation: int) -> None:
        """Acknowledge settings that take effect at the next unit."""
        ...

    async def cancel(
        self, cancelled: Fence, current: Fence, heard: str, consumed_seq: int | None = None
    ) -> Released:
        """Advance to `current` and stop what `cancelled` was speaking."""
        ...

    async def close(self, fence: Fence) -> Released:
        """Release everything of this incarnation. Idempotent."""
        ...


@dataclass(frozen=True, slots=True)
class Plugin:
    """A model as the application builder sees it: its descriptor and its two factories.

    Factories take the plugin's validated settings (a mapping from the deploy file's
    `model_settings`) and must be cheap: weights load in `warm_up`.
    """

    descriptor: Descriptor
    make_stage0: Callable[[dict[str, Any]], Stage0Model]
    make_stage1: Callable[[dict[str, Any]], Stage1Model]
    check_settings: Callable[[dict[str, Any]], None]
    """Raises ValueError with the field's name for settings it does not take."""
