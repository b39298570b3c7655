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

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from session.config import RuntimeConfig
from session.errors import StageRefused, StageUnavailable, UnsupportedOption
from session.ids import RequestId, SessionId
from session.unit import SAMPLE_BYTES, SpeechChunk, SpeechMetrics
from stages.contract import Speech
from stages.minicpmo.loaded_voice import LoadedVoice, LoadVoice
from stages.minicpmo.schedule import UNIT_SAMPLES, VocoderCall, Waiting, schedule_unit
from stages.minicpmo.settings import MiniCPMOSettings
from stages.minicpmo.talker import UnitCodes
from stages.minicpmo.token2wav import Spoken, Turn, Voice
from stages.minicpmo.transcript import spread
from stages.minicpmo.unit_answer import seed_of
from stages.minicpmo.vocoder_stream import to_pcm

UNIT_S: Final = 1.0
_WARM_UP: Final = SessionId("warm-up")
_WARM_UP_UNITS: Final = 3


@dataclass(frozen=True, slots=True, eq=False)
class _Spoken:
    """What one turn remembers beside the talker's memory."""

    waiting: Waiting
    vocoder: Turn


@dataclass(slots=True, eq=False)
class _Session:
    """One session's voice, and its turn."""

    voice: Voice
    sample: bytes
    turn: _Spoken | None = None
    """None: the next unit begins a turn."""
    units: int = 0
    interrupts: int = 0


class MiniCPMOStage1:
    """Implements `stages.contract.Stage1Model`."""

    def __init__(
        self, settings: MiniCPMOSettings, load: LoadVoice, now: Callable[[], float]
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
        await loaded.desk.warm_up(len(loaded.prompts.own.prompt.mel))
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
        self._sessions[session_id] = _Session(voice, runtime.voice_sample)

    async def speak(self, session_id: SessionId, speech: Speech) -> AsyncIterator[SpeechChunk]:
        """Yield the chunks of one unit's speech."""
        loaded, session = self._ready(), self._find(session_id)
        interrupts = session.interrupts
        session.units += 1
        name = RequestId(f"{session_id}/speech/{session.units}")
        turn, session.turn = session.turn, None
        if turn is None or speech.turn_start:
            turn = _Spoken(Waiting(), loaded.desk.begin(session.voice, seed_of(name)))
            speech = replace(speech, turn_start=True)
        unit = await self._codes(session_id, speech, name)
        calls, waiting = schedule_unit(
            turn.waiting,
            unit.codes,
            turn_ends=speech.turn_end,
            first_call_codes=self._settings.voice.first_call_codes,
        )
        chunks = _Chunks(speech, calls, unit)
        vocoder = turn.vocoder
        del turn
        for call in calls:
            began_s = self._now()
            spoken = await loaded.desk.speak(vocoder, call)
            if session.interrupts != interrupts:
                raise StageRefused("the speech was interrupted")
            vocoder = spoken.turn
            yield chunks.next(spoken, (self._now() - began_s) * 1000)
        if not calls:
            yield chunks.silent()
        if not speech.turn_end:
            session.turn = _Spoken(waiting, vocoder)

    async def configure(self, session_id: SessionId, runtime: RuntimeConfig) -> None:
        """Take settings between units; of those that can change, none changes the sound."""
        if runtime.voice_sample != self._find(session_id).sample:
            raise UnsupportedOption(
                "the recording of the voice can not change during a session",
                param="session.ref_audio",
            )

    async def interrupt(self, session_id: SessionId) -> None:
        """Stop speaking, and forget the turn."""
        session = self._sessions.get(session_id)
        if session is not None:
            session.interrupts += 1
            session.turn = None
            await self._ready().talker.cut(session_id)

    async def close(self, session_id: SessionId) -> None:
        """Release everything; unknown sessions are no error."""
        loaded = self._ready()
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.interrupts += 1
        await loaded.talker.close(session_id)
        loaded.memory.release(session_id)

    def _ready(self) -> LoadedVoice:
        if self._loaded is None:
            raise StageUnavailable("the voice is not loaded yet")
        return self._loaded

    def _find(self, session_id: SessionId) -> _Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise StageRefused("the session is not open at this model")
        return session

    async def _codes(self, session_id: SessionId, speech: Speech, name: RequestId) -> UnitCodes:
        return await self._ready().talker.speak(
            session_id,
            speech,
            request_id=name,
            seed=None if self._settings.voice.greedy else seed_of(name),
            deadline_s=self._now() + UNIT_S,
        )


class _Chunks:
    """What a unit's chunks have beside their sound: words, flags, times."""

    def __init__(self, speech: Speech, calls: Sequence[VocoderCall], unit: UnitCodes) -> None:
        samples = [call.samples for call in calls]
        self._speech = speech
        self._words = list(spread(speech.text, samples))
        self._left_zeros = 0 if speech.turn_end else max(0, UNIT_SAMPLES - sum(samples))
        self._talker_ms = unit.timing.ttft_ms + sum(unit.timing.itls_ms)
        self._waited_ms = unit.timing.queued_ms

    def next(self, spoken: Spoken, took_ms: float) -> SpeechChunk:
        """Return the next chunk, which was there `took_ms` after it was asked for."""
        flow_ms, vocoder_ms = spoken.flow_s * 1000, spoken.vocoder_s * 1000
        metrics = SpeechMetrics(
            talker_ms=self._talker_ms,
            flow_ms=flow_ms,
            vocoder_ms=vocoder_ms,
            waited_ms=self._waited_ms + max(0.0, took_ms - flow_ms - vocoder_ms),
            batch=spoken.batch,
        )
        pcm = bytes(self._left_zeros * SAMPLE_BYTES) + to_pcm(spoken.wave)
        chunk = self._with_flags(SpeechChunk(pcm, self._words.pop(0), metrics=metrics))
        self._left_zeros, self._talker_ms, self._waited_ms = 0, 0.0, 0.0
        return chunk

    def silent(self) -> SpeechChunk:
        """Return the only chunk of a unit whose codes all wait for the next one."""
        return self._with_flags(SpeechChunk(b"", self._speech.text))

    def _with_flags(self, chunk: SpeechChunk) -> SpeechChunk:
        if self._words:
            return chunk
        return replace(chunk, segment_end=self._speech.segment_end, turn_end=self._speech.turn_end)
