"""The ports through which a session reaches the stages; fakes in tests implement the same.

`SpeechRef` is opaque: in the shipped path it is a Ray object reference that the gateway never
resolves, so a unit's hidden rows travel from Stage0's node straight to Stage1's.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple, Protocol

from serve_app.tracing.tracer import TraceParent
from session.config import RuntimeConfig
from session.fence import Fence
from session.ids import OperationId
from session.unit import SpeechChunk, Unit, UnitResult
from stages.descriptor import Descriptor

SpeechRef = Any


class AppendedRef(NamedTuple):
    """Stage0's answer: the small result by value, the speech by reference."""

    result: UnitResult
    speech: SpeechRef


class Replicas(NamedTuple):
    """The replicas of both stages that hold a session, by the names that Serve gives them."""

    stage0: str
    stage1: str


class StageSession(Protocol):
    """Both stages, leased and opened for one session.

    With `trace`, a call goes on with the trace of its unit.

    Every method raises `session.errors.StageError` (or a LimitError at open) and nothing else but
    ClientError, where the model refuses what a client asked for: at open, append and configure.
    After `close` or a loss, later calls fail at once, before anything is submitted.
    """

    @property
    def replicas(self) -> Replicas:
        """Where the session is held."""
        ...

    async def append(
        self,
        fence: Fence,
        *,
        seq: int,
        operation_id: OperationId,
        unit: Unit,
        config_generation: int,
        trace: TraceParent | None = None,
    ) -> AppendedRef:
        """Give one unit to Stage0."""
        ...

    def speak(
        self, fence: Fence, *, seq: int, speech: SpeechRef, trace: TraceParent | None = None
    ) -> AsyncIterator[SpeechChunk]:
        """Stream a unit's speech from Stage1. Closing the iterator cancels the remote call."""
        ...

    async def configure(self, fence: Fence, runtime: RuntimeConfig, generation: int) -> None:
        """Change both stages' settings at the next unit."""
        ...

    async def cancel(self, cancelled: Fence, current: Fence, heard: str, consumed_seq: int) -> None:
        """Advance both doors and stop what the old fence held."""
        ...

    async def close(self, fence: Fence) -> None:
        """Release both stages; returns when both have confirmed. Retries what failed."""
        ...

    async def wait_lost(self) -> tuple[str, Exception]:
        """Wait until a lease breaks by itself; return the stage's name and a StageError."""
        ...


StageOpener = Callable[[Fence, RuntimeConfig], Awaitable[StageSession]]
"""Opens both stages for a session, as `StageDirectory.open` does."""


class StageDirectory(Protocol):
    """Where sessions get their stages from."""

    @property
    def descriptor(self) -> Descriptor:
        """The deployed model."""
        ...

    async def open(self, fence: Fence, runtime: RuntimeConfig) -> StageSession:
        """Lease Stage0, then Stage1, then open both; on any failure give everything back.

        Raises AdmissionRefused when no slot is free, StageUnavailable when a stage does not
        answer, StageContractBroken when descriptors differ.
        """
        ...

    async def health(self) -> dict[str, str]:
        """Answer of each stage: `ok`, or what is wrong."""
        ...
