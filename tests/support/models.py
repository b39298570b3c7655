"""Models for tests of the door: they answer, wait and fail when they are told to."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

from session.config import RuntimeConfig
from session.ids import RequestId, SessionId
from session.unit import Decision, SpeechChunk, Unit, UnitResult
from stages.contract import Appended, Speech


class Gate:
    """A place where calls wait, when it is held."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._is_held = False
        self._permits = asyncio.Semaphore(0)
        self._waiting = 0

    def hold(self) -> None:
        """Make calls wait from now on."""
        self._is_held = True
        self.reached.clear()

    def let(self, calls: int = 1) -> None:
        """Let so many of the waiting calls pass; the others still wait."""
        self.reached.clear()
        for _ in range(calls):
            self._permits.release()

    def release(self) -> None:
        """Let everyone pass from now on."""
        self._is_held = False
        self.let(self._waiting)

    async def go(self) -> None:
        """Pass, or say that somebody waits and wait."""
        self.reached.set()
        if not self._is_held:
            return
        self._waiting += 1
        try:
            await self._permits.acquire()
        finally:
            self._waiting -= 1


async def settle() -> None:
    """Let every task go as far as it can without help from outside."""
    for _ in range(20):
        await asyncio.sleep(0)


class HandModel:
    """What both halves have in common: a record of calls, gates and faults."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.open_sessions: set[SessionId] = set()
        self.settings: dict[SessionId, RuntimeConfig] = {}
        self.gates = {name: Gate() for name in ("open", "work", "configure", "interrupt", "close")}
        self.faults: dict[str, list[Exception]] = {name: [] for name in self.gates}
        self.dies = asyncio.Event()
        self.inside = 0
        self.most_inside = 0
        """Highest number of appends, speeches or configures that were inside at once."""

    def fail_next(self, call: str, fault: Exception) -> None:
        """Let the next `call` raise `fault`."""
        self.faults[call].append(fault)

    async def open(self, session_id: SessionId, runtime: RuntimeConfig) -> None:
        """Take a session."""
        await self._pass("open")
        self.open_sessions.add(session_id)
        self.settings[session_id] = runtime

    async def configure(self, session_id: SessionId, runtime: RuntimeConfig) -> None:
        """Take settings."""
        self._enter()
        try:
            await self._pass("configure")
            self.settings[session_id] = runtime
        finally:
            self.inside -= 1

    async def close(self, session_id: SessionId) -> None:
        """Give a session back."""
        await self._pass("close")
        self.open_sessions.discard(session_id)

    async def warm_up(self) -> None:
        """Count."""
        self.calls["warm_up"] += 1

    async def died(self) -> str:
        """Return once `dies` is set."""
        await self.dies.wait()
        return "it was told to"

    def _enter(self) -> None:
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)

    async def _pass(self, call: str) -> None:
        self.calls[call] += 1
        await self.gates[call].go()
        if self.faults[call]:
            raise self.faults[call].pop(0)


class HandStage0(HandModel):
    """Speaks the text of each unit that has one, and listens to the others."""

    def __init__(self) -> None:
        super().__init__()
        self.units: list[tuple[SessionId, Unit, RuntimeConfig]] = []
        self.heard: list[tuple[SessionId, str]] = []
        self.undone: list[bool] = []
        self.requests: list[RequestId | None] = []
        self.echoes = True
        """Answer under the request's own id; otherwise under another one."""

    async def append(
        self, session_id: SessionId, unit: Unit, *, request_id: RequestId | None = None
    ) -> Appended:
        """Record the unit with the settings it met, and answer."""
        self._enter()
        self.requests.append(request_id)
        echo = request_id if self.echoes else RequestId("another")
        try:
            self.units.append((session_id, unit, self.settings[session_id]))
            await self._pass("work")
        finally:
            self.inside -= 1
        if not unit.text:
            return Appended(UnitResult(Decision.LISTEN), None, echo)
        result = UnitResult(Decision.SPEAK, unit.text, segment_end=True, turn_end=True)
        return Appended(result, Speech(unit.text, segment_end=True, turn_end=True), echo)

    async def interrupt(self, session_id: SessionId, heard: str, *, undoes_unit: bool) -> None:
        """Record what was heard, and whether the last unit is to be given again."""
        self.heard.append((session_id, heard))
        self.undone.append(undoes_unit)
        await self._pass("interrupt")


class HandStage1(HandModel):
    """Makes one chunk for each word; the gate `work` stands before each of them."""

    def __init__(self) -> None:
        super().__init__()
        self.stopped: list[SessionId] = []

    async def speak(self, session_id: SessionId, speech: Speech) -> AsyncIterator[SpeechChunk]:
        """Yield a chunk a word."""
        del session_id
        self._enter()
        try:
            words = speech.text.split(" ")
            for index, word in enumerate(words):
                await self._pass("work")
                is_last = index == len(words) - 1
                yield SpeechChunk(
                    b"\x01\x00" * 240,
                    word if is_last else word + " ",
                    segment_end=is_last and speech.segment_end,
                    turn_end=is_last and speech.turn_end,
                )
        finally:
            self.inside -= 1

    async def interrupt(self, session_id: SessionId) -> None:
        """Record that it was stopped."""
        self.stopped.append(session_id)
        await self._pass("interrupt")
