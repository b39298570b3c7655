"""The scripted model behind its real doors, in this process, with knobs on every call."""

import asyncio
import weakref
from collections import defaultdict, deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

from serve_app.ports import AppendedRef, Replicas, SpeechRef
from serve_app.tracing.tracer import TraceParent
from session.config import RuntimeConfig
from session.errors import AdmissionRefused, DuplexError, StageError, StageUnavailable
from session.fence import Fence
from session.ids import OperationId
from session.unit import SpeechChunk, Unit
from stages.binding import Stage0Door, Stage1Door
from stages.contract import Speech
from stages.descriptor import Descriptor
from stages.scripted.plugin import PLUGIN


@dataclass(frozen=True)
class Call:
    """One call as it came in."""

    name: str
    fence: Fence
    seq: int = 0
    trace: TraceParent | None = None


@dataclass
class Knobs:
    """What a test can do to the calls: open, append, speak, configure, cancel, close.

    `answer` is an append on its way back, `chunk` a piece of speech on its way.
    """

    calls: list[Call] = field(default_factory=list)
    _held: dict[str, asyncio.Event] = field(default_factory=dict)
    _faults: dict[str, deque[Exception]] = field(default_factory=lambda: defaultdict(deque))
    _came: dict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))

    def hold(self, name: str) -> None:
        """Let calls of this name wait at the door."""
        self._held[name] = asyncio.Event()

    def release(self, name: str) -> None:
        """Let them go on."""
        self._held.pop(name).set()

    def fail_next(self, name: str, fault: Exception) -> None:
        """Let the next call of this name fail."""
        self._faults[name].append(fault)

    async def wait_called(self, name: str) -> None:
        """Wait until a call of this name has come since the last time it was waited for."""
        async with asyncio.timeout(5):
            await self._came[name].wait()
        self._came[name].clear()

    def names(self) -> list[str]:
        """Names of all calls so far; what came back is left out."""
        return [call.name for call in self.calls if call.name not in {"answer", "chunk"}]

    async def enter(
        self, name: str, fence: Fence, seq: int = 0, trace: TraceParent | None = None
    ) -> None:
        """Note a call; hold it or fail it as the test wants."""
        self.calls.append(Call(name, fence, seq, trace))
        self._came[name].set()
        if name in self._held:
            await self._held[name].wait()
        if self._faults[name]:
            raise self._faults[name].popleft()


class Ref:
    """A reference to speech that the gateway must not look into."""

    def __init__(self, speech: Speech | None) -> None:
        self._speech = speech

    def open_at_stage1(self) -> Speech:
        """Return the speech; only Stage1 asks."""
        assert self._speech is not None
        return self._speech


class ScriptedStages:
    """Implements `serve_app.ports.StageSession`."""

    def __init__(self, directory: "ScriptedDirectory") -> None:
        self._directory = directory
        self._knobs = directory.knobs
        self._lost: asyncio.Future[tuple[str, Exception]] = (
            asyncio.get_running_loop().create_future()
        )
        self.is_closed = False
        self.open_iterators = 0

    @property
    def replicas(self) -> Replicas:
        """Where the session is held."""
        return Replicas("hearing", "speaking")

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
        self._check()
        await self._knobs.enter("append", fence, seq, trace)
        appended = await self._directory.stage0.append(
            fence,
            seq=seq,
            operation_id=operation_id,
            unit=unit,
            config_generation=config_generation,
        )
        await self._knobs.enter("answer", fence, seq)
        ref = Ref(appended.speech)
        self._directory.live_refs.add(ref)
        return AppendedRef(appended.result, ref)

    async def speak(
        self, fence: Fence, *, seq: int, speech: SpeechRef, trace: TraceParent | None = None
    ) -> AsyncGenerator[SpeechChunk, None]:
        """Stream a unit's speech from Stage1."""
        self._check()
        self.open_iterators += 1
        try:
            await self._knobs.enter("speak", fence, seq, trace)
            spoken = speech.open_at_stage1()
            async for chunk in self._directory.stage1.speak(fence, seq=seq, speech=spoken):
                await self._knobs.enter("chunk", fence, seq)
                yield chunk
        finally:
            self.open_iterators -= 1

    async def configure(self, fence: Fence, runtime: RuntimeConfig, generation: int) -> None:
        """Change both stages' settings."""
        self._check()
        await self._knobs.enter("configure", fence)
        await self._directory.stage0.configure(fence, runtime, generation)
        await self._directory.stage1.configure(fence, runtime, generation)

    async def cancel(self, cancelled: Fence, current: Fence, heard: str, consumed_seq: int) -> None:
        """Advance both doors."""
        self._check()
        await self._knobs.enter("cancel", cancelled)
        self._directory.consumed.append(consumed_seq)
        await self._directory.stage0.cancel(cancelled, current, heard, consumed_seq)
        await self._directory.stage1.cancel(cancelled, current, heard)

    async def close(self, fence: Fence) -> None:
        """Release both stages."""
        await self._knobs.enter("close", fence)
        await self._directory.stage0.close(fence)
        await self._directory.stage1.close(fence)
        if not self.is_closed:
            self.is_closed = True
            self._directory.count_sessions(-1)

    async def wait_lost(self) -> tuple[str, Exception]:
        """Wait until a test says `lose`."""
        return await self._lost

    def lose(self, stage: str, error: StageError) -> None:
        """Break the lease on one stage."""
        self._lost.set_result((stage, error))

    def _check(self) -> None:
        if self.is_closed:
            raise StageUnavailable("closed")


class ScriptedDirectory:
    """Implements `serve_app.ports.StageDirectory`; settings are the scripted model's own."""

    def __init__(self, *, max_sessions: int = 1, **settings: Any) -> None:
        self.knobs = Knobs()
        self.max_sessions = max_sessions
        self.open_sessions = 0
        self._changed = asyncio.Event()
        self.opened: list[ScriptedStages] = []
        self.live_refs: weakref.WeakSet[Ref] = weakref.WeakSet()
        self.sick: dict[str, str] = {}
        self.consumed: list[int] = []
        """What each cancel named as the last unit that counts."""
        self.unreachable: StageError | None = None
        """What whoever looks for the stages is told."""
        self.stage0 = Stage0Door(PLUGIN.make_stage0(settings), cache_size=1)
        self.stage1 = Stage1Door(PLUGIN.make_stage1(settings))

    @property
    def descriptor(self) -> Descriptor:
        """The scripted model."""
        return PLUGIN.descriptor

    def count_sessions(self, difference: int) -> None:
        """Note an opened or closed session, and wake who waits for a change."""
        self.open_sessions += difference
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self) -> None:
        """Wait until a session is opened or closed."""
        await self._changed.wait()

    @property
    def bound_sessions(self) -> int:
        """Sessions that either door still holds."""
        return max(self.stage0.bound_sessions, self.stage1.bound_sessions)

    async def open(self, fence: Fence, runtime: RuntimeConfig) -> ScriptedStages:
        """Admit and open a session at both doors, or leave nothing behind."""
        if self.open_sessions >= self.max_sessions:
            raise AdmissionRefused(f"duplex_session_capacity_exhausted: limit={self.max_sessions}")
        self.count_sessions(1)
        stages = ScriptedStages(self)
        try:
            await self.knobs.enter("open", fence)
            await self.stage0.open(fence, runtime)
            await self.stage1.open(fence, runtime)
        except DuplexError:
            await stages.close(fence)
            raise
        self.opened.append(stages)
        return stages

    async def health(self) -> dict[str, str]:
        """Answer `ok` for both, or what a test has set."""
        return {"stage0": "ok", "stage1": "ok"} | self.sick


def answering(*, max_sessions: int = 1, **settings: Any) -> ScriptedDirectory:
    """Return stages that answer the first unit with one sentence of three chunks."""
    script = {"speak_at_units": [1], "sentences": 1} | settings
    return ScriptedDirectory(max_sessions=max_sessions, **script)
