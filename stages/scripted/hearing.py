"""The scripted Stage0: when an answer starts, and what it says.

Rule 1: a unit whose level is above `speech_level` is speech.
Rule 2: an answer starts at the first silent unit after speech, at a unit with text, or at a unit
        in `speak_at_units`; where the session does not let the model speak on its own
        (`auto_response`), only at a unit that closes the input, with which one always starts.
Rule 3: an answer is `sentences` units of speech, one a unit, and the last one ends the turn. Speech
        that is heard meanwhile is answered after it.
Rule 4: a unit that forces listening is listened to; the answer goes on after it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import numpy as np

from session.config import RuntimeConfig
from session.errors import StageFailed
from session.ids import SessionId
from session.unit import Decision, Unit, UnitResult
from stages.contract import Appended, Speech
from stages.scripted.settings import ScriptedSettings

Sleep = Callable[[float], Awaitable[None]]

LISTENS = Appended(UnitResult(Decision.LISTEN), None)
FULL_SCALE = 32_768


@dataclass(slots=True)
class _Ear:
    """What Stage0 knows of one session."""

    runtime: RuntimeConfig
    units: int = 0
    answers: int = 0
    part: int = 0
    """Sentence of the current answer that was given last; 0 between answers."""
    has_heard: bool = False
    said: str = ""
    failed_closes: int = 0
    freed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set to let a hanging unit go."""


class ScriptedStage0:
    """Listens by level and answers by the script."""

    def __init__(self, settings: ScriptedSettings, sleep: Sleep = asyncio.sleep) -> None:
        self._settings = settings
        self._sleep = sleep
        self._ears: dict[SessionId, _Ear] = {}

    async def open(self, session_id: SessionId, runtime: RuntimeConfig) -> None:
        """Begin to listen to a session."""
        check_voice(self._settings, runtime)
        self._ears[session_id] = _Ear(runtime)

    async def append(self, session_id: SessionId, unit: Unit) -> Appended:
        """Decide by the rules above."""
        ear = self._ears[session_id]
        ear.units += 1
        await self._sleep(self._settings.unit_delay_ms / 1000)
        if ear.units in self._settings.fail_at_units:
            raise StageFailed(f"the script fails at unit {ear.units}")
        if ear.units in self._settings.hang_at_units:
            await ear.freed.wait()
        return self._decide(session_id, ear, unit)

    async def configure(self, session_id: SessionId, runtime: RuntimeConfig) -> None:
        """Take new settings, if the voice is one of ours."""
        check_voice(self._settings, runtime)
        self._ears[session_id].runtime = runtime

    async def interrupt(self, session_id: SessionId, heard: str) -> None:
        """Forget the answer in progress, and what it answered."""
        del heard  # the script does not depend on what was heard of it
        ear = self._ears[session_id]
        ear.part = 0
        ear.has_heard = False
        ear.said = ""
        ear.freed.set()
        ear.freed = asyncio.Event()

    async def close(self, session_id: SessionId) -> None:
        """Stop listening to a session."""
        ear = self._ears.get(session_id)
        if ear is None:
            return
        if ear.failed_closes < self._settings.failing_closes:
            ear.failed_closes += 1
            raise StageFailed(f"the script fails close {ear.failed_closes}")
        ear.freed.set()
        del self._ears[session_id]

    async def warm_up(self) -> None:
        """Nothing needs warming."""

    def _decide(self, session_id: SessionId, ear: _Ear, unit: Unit) -> Appended:
        is_loud = level(unit.pcm) > self._settings.speech_level
        starts = self._starts_answer(ear, unit, is_loud=is_loud)
        ear.has_heard = ear.has_heard or is_loud
        ear.said = ear.said or unit.text
        if unit.force_listen or ear.units <= ear.runtime.force_listen_count:
            return LISTENS
        if ear.part == 0 and not starts:
            return LISTENS
        if ear.part == 0:
            ear.answers += 1
            ear.has_heard = False
        return self._next_sentence(session_id, ear)

    def _starts_answer(self, ear: _Ear, unit: Unit, *, is_loud: bool) -> bool:
        if unit.closes_input or ear.units in self._settings.speak_at_units:
            return True
        waits = (ear.has_heard and not is_loud) or bool(unit.text or ear.said)
        return waits and ear.runtime.auto_response

    def _next_sentence(self, session_id: SessionId, ear: _Ear) -> Appended:
        ear.part += 1
        text = self._settings.sentence_text(session_id, ear.answers, ear.part, ear.said)
        is_last = ear.part == self._settings.sentences
        if is_last:
            ear.part = 0
            ear.said = ""
        # Sentences are joined by the client as they come, so each but the last ends in a space.
        spoken = text if is_last else text + " "
        result = UnitResult(Decision.SPEAK, spoken, segment_end=True, turn_end=is_last)
        return Appended(result, Speech(spoken, segment_end=True, turn_end=is_last))


def level(pcm: bytes) -> float:
    """Return the root mean square of 16-bit PCM, with full scale at 1; silence for no audio."""
    if not pcm:
        return 0.0
    samples = np.frombuffer(pcm, dtype="<i2").astype(np.float64) / FULL_SCALE
    return float(np.sqrt(np.mean(samples * samples)))


def check_voice(settings: ScriptedSettings, runtime: RuntimeConfig) -> None:
    """Refuse a voice that the script does not have."""
    if runtime.voice not in settings.voices:
        known = ", ".join(voice for voice in settings.voices if voice)
        raise StageFailed(f"no voice {runtime.voice!r}; there are: {known}")
