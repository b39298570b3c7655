"""MiniCPM-o's speaking half: each unit of words and hidden rows becomes chunks of sound.

Rule 1: what a turn remembers is one value beside the talker's memory: what of its codes waits, and
        the vocoder's state. A unit takes it and puts the next one in its place when it has been
        spoken whole. Whatever breaks a unit off, a failure, a cancel or a caller that went away,
        leaves none, and then the talker begins anew too: the two never tell different stories.
Rule 2: the end of a turn empties both; the end of a segment within it changes nothing.
Rule 3: memory for sound and for the talker is a session's from its open to its close. So a unit
        never waits for memory; and letting go of a turn's value is all that freeing takes.
Rule 4: what a session sounds like depends on its voice, its units and its name alone, whoever else
        is spoken for.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from session.config import RuntimeConfig
from session.errors import StageRefused, StageUnavailable
from session.ids import RequestId, SessionId
from session.unit import SpeechChunk
from stages.contract import Speech, TokenMemory
from stages.minicpmo.schedule import (
    CODE_SAMPLES,
    HELD_BACK_SAMPLES,
    LOOK_AHEAD,
    MAX_CALL_CODES,
    UNIT_SAMPLES,
    VocoderCall,
    Waiting,
    schedule_unit,
)
from stages.minicpmo.settings import MiniCPMOSettings
from stages.minicpmo.talker_unit import CODES_PER_SECOND, Codes
from stages.minicpmo.unit_answer import seed_of
from stages.minicpmo.unit_chunks import UnitChunks

if TYPE_CHECKING:  # torch, which whoever only checks a deploy file may not have
    from stages.minicpmo.loaded_voice import LoadedVoice, LoadVoice
    from stages.minicpmo.talker import UnitCodes
    from stages.minicpmo.token2wav import Turn, Voice

UNIT_S: Final = 1.0
_WARM_UP: Final = SessionId("warm-up")
_WARM_UP_UNITS: Final = 3


@dataclass(frozen=True, slots=True, eq=False)
class _Turn:
    """What one turn remembers beside the talker's memory."""

    waiting: Waiting
    vocoder: "Turn"


@dataclass(slots=True, eq=False)
class _Session:
    """One session's voice, and its turn."""

    voice: "Voice"
    turn: _Turn | None = None
    """None: the next unit begins a turn."""
    units: int = 0
    interrupts: int = 0


@dataclass(slots=True, eq=False)
class _Unit:
    """What is spoken now."""

    session: _Session
    interrupts: int
    """The session's, when the unit began."""
    waiting: Waiting
    """Codes that the turn had not spoken before."""
    vocoder: "Turn"
    chunks: UnitChunks


class MiniCPMOStage1:
    """Implements `stages.contract.Stage1Model`."""

    def __init__(
        self, settings: MiniCPMOSettings, load: "LoadVoice", now: Callable[[], float]
    ) -> None:
        """`now` is monotonic, in seconds, and the clock that deadlines are told by."""
        self._settings = settings
        self._load = load
        self._now = now
        self._loaded: LoadedVoice | None = None
        self._sessions: dict[SessionId, _Session] = {}

    async def warm_up(self) -> None:
        """Load everything, run every size of batch, and speak a turn to nobody."""
        loaded = await self._load(self._settings)
        is_gpu = self._settings.device != "cpu"
        await loaded.desk.warm_up(len(loaded.prompts.own.prompt.mel), all_sizes=is_gpu)
        self._loaded = loaded
        await self.open(_WARM_UP, RuntimeConfig())
        try:
            for number in range(_WARM_UP_UNITS):
                is_last = number == _WARM_UP_UNITS - 1
                speech = Speech("", segment_end=True, turn_end=is_last, turn_start=number == 0)
                async for _ in self.speak(_WARM_UP, speech):
                    pass
        finally:
            await self.close(_WARM_UP)

    def token_memory(self) -> TokenMemory:
        """Return how full the memory of the talker is."""
        return self._ready().talker.capacity().tokens

    async def died(self) -> str:
        """Return why the talker's engine is dead or stuck, once it is."""
        return await self._ready().talker.died()

    async def open(self, session_id: SessionId, runtime: RuntimeConfig) -> None:
        """Reserve memory everywhere, and prepare the voice."""
        loaded = self._ready()
        if session_id in self._sessions:
            raise StageRefused("the session is open already")
        named = loaded.prompts.own
        if runtime.voice_sample:
            named = await loaded.prompts.learned(runtime.voice_sample)
        loaded.memory.reserve(session_id, named)
        try:
            voice = await loaded.desk.prepare(named.key, named.prompt)
            await loaded.talker.open(session_id)
        except BaseException:
            loaded.memory.release(session_id)
            raise
        self._sessions[session_id] = _Session(voice)

    async def speak(self, session_id: SessionId, speech: Speech) -> AsyncIterator[SpeechChunk]:
        """Yield the chunks of one unit's speech."""
        began_s, session = self._now(), self._find(session_id)
        session.units += 1
        name = RequestId(f"{session_id}/speech/{session.units}")
        turn, session.turn = session.turn, None
        if turn is None or speech.turn_start:
            vocoder = self._ready().desk.begin(session.voice, seed_of(name))
            turn, speech = _Turn(Waiting(), vocoder), replace(speech, turn_start=True)
        unit = _Unit(session, session.interrupts, turn.waiting, turn.vocoder, UnitChunks(speech))
        del turn
        early: asyncio.Future[Codes] = asyncio.get_running_loop().create_future()
        work = self._codes(session_id, speech, name, self._listener(unit, speech, early))
        talking = asyncio.ensure_future(work)
        called = 0
        try:
            either: set[asyncio.Future[Any]] = {talking, early}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not talking.done():
                called = 1
                call = self._calls(unit, early.result(), turn_ends=False)[0][0]
                unit.chunks.coded((self._now() - began_s) * 1000, 0.0)
                after = UNIT_SAMPLES if speech.turn_end else _second_after(unit.waiting, call)
                yield await self._sound(unit, call, (after,))
            codes = await talking
        finally:
            await _ended(talking)
        _require_wanted(unit)
        unit.chunks.coded(codes.timing.total_ms, codes.timing.queued_ms)
        calls, waiting = self._calls(unit, codes.codes, turn_ends=speech.turn_end)
        left = calls[called:]
        for number, call in enumerate(left, start=1):
            to_come = [later.samples for later in left[number:]]
            chunk = await self._sound(unit, call, to_come)
            yield chunk if to_come else unit.chunks.last(chunk)
        if not left:
            yield unit.chunks.rest()
        if not speech.turn_end and session.interrupts == unit.interrupts:
            session.turn = _Turn(waiting, unit.vocoder)

    async def configure(self, session_id: SessionId, runtime: RuntimeConfig) -> None:
        """Take settings between units; of those that can change, none changes the sound."""
        del runtime
        self._find(session_id)

    async def interrupt(self, session_id: SessionId) -> None:
        """Stop speaking, and forget the turn."""
        session = self._sessions.get(session_id)
        if session is not None:
            session.interrupts += 1
            session.turn = None
            await self._ready().talker.cut(session_id)

    async def close(self, session_id: SessionId) -> None:
        """Release everything; unknown sessions are no error."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.interrupts += 1
            await self._ready().talker.close(session_id)
            self._ready().memory.release(session_id)

    def _ready(self) -> "LoadedVoice":
        if self._loaded is None:
            raise StageUnavailable("the voice is not loaded yet")
        return self._loaded

    def _find(self, session_id: SessionId) -> _Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise StageRefused("the session is not open at this model")
        return session

    async def _codes(
        self,
        session_id: SessionId,
        speech: Speech,
        name: RequestId,
        listener: Callable[[Codes], None] | None,
    ) -> "UnitCodes":
        return await self._ready().talker.speak(
            session_id,
            speech,
            request_id=name,
            seed=None if self._settings.voice.greedy else seed_of(name),
            deadline_s=self._now() + UNIT_S,
            on_codes=listener,
        )

    def _listener(
        self, unit: "_Unit", speech: Speech, early: asyncio.Future[Codes]
    ) -> Callable[[Codes], None] | None:
        """Return who waits for the codes of a unit's first call, where more codes may follow them.

        They do where a turn's first call is a short one, and where a turn's end is longer than a
        second: playback would not last until the last code of it.
        """
        first, is_first = self._settings.voice.first_call_codes, not unit.waiting.has_called
        codes_of_call = first if is_first else MAX_CALL_CODES
        if codes_of_call == MAX_CALL_CODES and not speech.turn_end:
            return None
        wanted = codes_of_call - len(unit.waiting.codes)

        def listen(codes: Codes) -> None:
            if len(codes) >= wanted and not early.done():
                early.set_result(codes)

        return listen

    def _calls(
        self, unit: "_Unit", codes: Codes, *, turn_ends: bool
    ) -> tuple[tuple[VocoderCall, ...], Waiting]:
        first = self._settings.voice.first_call_codes
        return schedule_unit(unit.waiting, codes, turn_ends=turn_ends, first_call_codes=first)

    async def _sound(self, unit: "_Unit", call: VocoderCall, to_come: Sequence[int]) -> SpeechChunk:
        began_s = self._now()
        spoken = await self._ready().desk.speak(unit.vocoder, call)
        _require_wanted(unit)
        unit.vocoder = spoken.turn
        return unit.chunks.next(spoken, (self._now() - began_s) * 1000, to_come)


def _require_wanted(unit: _Unit) -> None:
    if unit.session.interrupts != unit.interrupts:
        raise StageRefused("the speech was interrupted")


def _second_after(waiting: Waiting, call: VocoderCall) -> int:
    """Return the samples behind a turn's first call, if the unit has a second of codes."""
    codes = len(waiting.codes) + CODES_PER_SECOND - LOOK_AHEAD
    return max(0, codes * CODE_SAMPLES - HELD_BACK_SAMPLES - call.samples)


async def _ended(task: "asyncio.Task[UnitCodes]") -> None:
    """Return when the task has ended, which nobody may wait for any more."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # whoever waits has it already, or has a worse one
