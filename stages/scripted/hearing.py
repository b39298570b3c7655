"""The scripted Stage0: when an answer starts, and what it says.

Rule 1: a unit whose level is above `speech_level` is speech.
Rule 2: an answer starts at the first silent unit after speech, at a unit with text, or at a unit
        in `speak_at_units`; where the session does not let the model speak on its own
        (`auto_response`), only at a unit that closes the input, with which one always starts.
Rule 3: an answer is `sentences` units of speech, one a unit, and the last one ends the turn. Speech
        that is heard meanwhile is answered after it.
Rule 4: a unit that forces listening is listened to; the answer goes on after it.
Rule 5: the text "call NAME ARGUMENTS" calls that tool, if the session or the answer has it, and
        "speak and call NAME ARGUMENTS" does so after the last sentence. Where a call is required
        and the text asks for none, the chosen tool, or else the first one, is called without
        arguments. What a function returned is answered as if the user had written it.
Rule 6: an answer heeds its own voice, speed, instructions, tools, and token limit, which here
        counts words; the next one has the session's again.
Rule 7: messages are remembered and start nothing. An answer that sees only what comes with it
        quotes only that.
Rule 8: a session whose first instructions are a script (`settings.OWN_SCRIPT`) follows that one.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import numpy as np

from session.config import AnswerSettings, RuntimeConfig
from session.context import ContextMessage
from session.errors import StageFailed, UnsupportedOption
from session.ids import RequestId, SessionId
from session.tools import FunctionCall, ToolUse
from session.unit import Decision, Unit, UnitResult
from stages.contract import Appended, Speech, lives_with_its_process
from stages.scripted.settings import About, ScriptedSettings

Sleep = Callable[[float], Awaitable[None]]

LISTENS = Appended(UnitResult(Decision.LISTEN), None)
FULL_SCALE = 32_768
KEPT_MESSAGES = 32
_CALL = re.compile(r"(speak and )?call (\S+) ?(.*)", re.DOTALL)
_SESSIONS_OWN = AnswerSettings()


@dataclass(frozen=True, slots=True)
class _Plan:
    """What an answer is to be: fixed when it starts."""

    runtime: RuntimeConfig
    said: str
    told: str
    options: AnswerSettings = _SESSIONS_OWN
    call: FunctionCall | None = None
    is_spoken: bool = True
    is_apart: bool = False


@dataclass(slots=True)
class _Ear:
    """What Stage0 knows of one session."""

    settings: ScriptedSettings
    runtime: RuntimeConfig
    units: int = 0
    answers: int = 0
    part: int = 0
    """Sentence of the current answer that was given last; 0 between answers."""
    has_heard: bool = False
    said: str = ""
    told: tuple[ContextMessage, ...] = ()
    told_before: tuple[ContextMessage, ...] = ()
    """Without what the newest unit told."""
    apart: Unit | None = None
    """Asks for an answer that sees nothing else."""
    plan: _Plan | None = None
    """The current answer; None between answers."""
    words: int = 0
    """Words of the current answer so far."""
    failed_closes: int = 0
    interrupts: int = 0
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
        settings = own_settings(self._settings, runtime)
        check_voice(settings, runtime)
        self._ears[session_id] = _Ear(settings, runtime)

    async def append(
        self, session_id: SessionId, unit: Unit, *, request_id: RequestId | None = None
    ) -> Appended:
        """Decide by the rules above."""
        del request_id  # nothing outlives the call
        ear = self._ears[session_id]
        ear.units += 1
        interrupts = ear.interrupts
        await self._sleep(ear.settings.unit_delay_ms / 1000)
        if ear.units in ear.settings.fail_at_units:
            raise StageFailed(f"the script fails at unit {ear.units}")
        if ear.units in ear.settings.hang_at_units:
            await ear.freed.wait()
        if ear.interrupts != interrupts:
            return LISTENS  # nobody waits for it, and it comes again
        return self._decide(session_id, ear, unit)

    async def configure(self, session_id: SessionId, runtime: RuntimeConfig) -> None:
        """Take new settings, if the voice is one of ours."""
        ear = self._ears[session_id]
        check_voice(ear.settings, runtime)
        ear.runtime = runtime

    async def interrupt(self, session_id: SessionId, heard: str, *, undoes_unit: bool) -> None:
        """Forget the answer in progress, and what it answered."""
        del heard  # the script does not depend on it
        ear = self._ears[session_id]
        ear.interrupts += 1
        if undoes_unit:
            ear.told = ear.told_before
        ear.apart = None
        _end_answer(ear)
        ear.has_heard = False
        ear.freed.set()
        ear.freed = asyncio.Event()

    async def close(self, session_id: SessionId) -> None:
        """Stop listening to a session."""
        ear = self._ears.get(session_id)
        if ear is None:
            return
        if ear.failed_closes < ear.settings.failing_closes:
            ear.failed_closes += 1
            raise StageFailed(f"the script fails close {ear.failed_closes}")
        ear.freed.set()
        del self._ears[session_id]

    async def warm_up(self) -> None:
        """Nothing needs warming."""

    async def died(self) -> str:
        """Never return: all of it is in this process."""
        return await lives_with_its_process()

    def _decide(self, session_id: SessionId, ear: _Ear, unit: Unit) -> Appended:
        is_loud = level(unit.pcm) > ear.settings.speech_level
        starts = self._starts_answer(ear, unit, is_loud=is_loud)
        ear.has_heard = ear.has_heard or is_loud
        if unit.is_fresh:
            ear.apart = unit
        else:
            _remember(ear, unit)
        if unit.force_listen or ear.units <= ear.runtime.force_listen_count:
            return LISTENS
        if ear.plan is None and not starts:
            return LISTENS
        if ear.plan is None:
            asked, ear.apart = ear.apart or unit, None
            try:
                ear.plan = _begin(ear, asked)
            except UnsupportedOption:
                ear.told = ear.told_before  # the unit counts as not consumed
                raise
        if not ear.plan.is_spoken:
            return _call_alone(ear, ear.plan)
        return self._next_sentence(session_id, ear, ear.plan)

    def _starts_answer(self, ear: _Ear, unit: Unit, *, is_loud: bool) -> bool:
        if unit.closes_input or ear.apart or ear.units in ear.settings.speak_at_units:
            return True
        waits = (ear.has_heard and not is_loud) or bool(unit.text or ear.said)
        return waits and ear.runtime.auto_response

    def _next_sentence(self, session_id: SessionId, ear: _Ear, plan: _Plan) -> Appended:
        ear.part += 1
        text = ear.settings.sentence_text(
            session_id,
            ear.answers,
            ear.part,
            about=About(plan.said, plan.runtime.instructions, plan.told),
        )
        limit = plan.runtime.max_output_tokens
        words = text.split()
        is_last = ear.part == ear.settings.sentences
        is_cut = False
        if limit is not None and ear.words + len(words) >= limit:
            is_cut = not is_last or ear.words + len(words) > limit
            is_last = True
            text = " ".join(words[: limit - ear.words])
        ear.words += len(words)
        if is_last:
            _end_answer(ear)
        # Sentences are joined by the client as they come, so each but the last ends in a space.
        spoken = text if is_last else text + " "
        result = UnitResult(
            Decision.SPEAK,
            spoken,
            segment_end=True,
            turn_end=is_last,
            is_cut=is_cut,
            calls=(plan.call,) if is_last and plan.call is not None else (),
        )
        speech = Speech(
            spoken,
            segment_end=True,
            turn_end=is_last,
            voice=plan.options.voice,
            speed=plan.options.speed,
        )
        return Appended(result, speech if spoken else None)


def _remember(ear: _Ear, unit: Unit) -> None:
    ear.told_before, ear.told = ear.told, (*ear.told, *unit.messages)[-KEPT_MESSAGES:]
    outputs = " ".join(each.output for each in unit.tool_outputs)
    ear.said = ear.said or unit.text or outputs
    if unit.closes_input:
        ear.said = ear.said or _last_words(unit.messages)


def _last_words(messages: tuple[ContextMessage, ...]) -> str:
    return next((each.text for each in reversed(messages) if each.role == "user"), "")


def _begin(ear: _Ear, unit: Unit) -> _Plan:
    """Plan the answer to what was said, or to a unit that sees nothing else."""
    options = unit.options or _SESSIONS_OWN
    runtime = options.apply_to(ear.runtime)
    check_voice(ear.settings, runtime)
    ear.answers += 1
    said, told = ear.said, ear.told
    if unit.is_fresh:
        said, told = unit.text or _last_words(unit.messages), unit.messages
    else:
        ear.has_heard = False
    wanted = _CALL.fullmatch(said)
    call = _planned_call(ear, runtime, wanted)
    is_spoken = call is None or (wanted is not None and wanted.group(1) is not None)
    quoted = ", ".join(f"{each.role}: {each.text}" for each in told)
    return _Plan(runtime, said, quoted, options, call, is_spoken, is_apart=unit.is_fresh)


def _planned_call(
    ear: _Ear, runtime: RuntimeConfig, wanted: re.Match[str] | None
) -> FunctionCall | None:
    """Return the call that the text asks for or the tool choice requires, if the tool is there."""
    names = [tool.name for tool in runtime.tools]
    choice = runtime.tool_choice
    name, arguments = ("", "") if wanted is None else (wanted.group(2), wanted.group(3))
    if choice.use is ToolUse.REQUIRED and name not in names and names:
        name, arguments = choice.name or names[0], ""
    if choice.use is ToolUse.NONE or name not in names:
        return None
    return FunctionCall(f"call_{ear.answers}", name, arguments or "{}")


def _call_alone(ear: _Ear, plan: _Plan) -> Appended:
    """Call the function instead of saying anything."""
    _end_answer(ear)
    calls = (plan.call,) if plan.call is not None else ()
    result = UnitResult(Decision.SPEAK, segment_end=True, turn_end=True, calls=calls)
    return Appended(result, None)


def _end_answer(ear: _Ear) -> None:
    """Forget the answer, and what was set for it alone."""
    ear.part = 0
    ear.words = 0
    if ear.plan is None or not ear.plan.is_apart:
        ear.said = ""
    ear.plan = None


def level(pcm: bytes) -> float:
    """Return the root mean square of 16-bit PCM, with full scale at 1; silence for no audio."""
    if not pcm:
        return 0.0
    samples = np.frombuffer(pcm, dtype="<i2").astype(np.float64) / FULL_SCALE
    return float(np.sqrt(np.mean(samples * samples)))


def own_settings(settings: ScriptedSettings, runtime: RuntimeConfig) -> ScriptedSettings:
    """Return the knobs that hold for a session."""
    try:
        return settings.of_session(runtime.instructions)
    except ValueError as error:
        raise StageFailed(f"bad script in the instructions: {error}") from error


def check_voice(settings: ScriptedSettings, runtime: RuntimeConfig) -> None:
    """Refuse a voice that the script does not have."""
    if runtime.voice not in settings.voices:
        known = ", ".join(voice for voice in settings.voices if voice)
        raise UnsupportedOption(
            f"no voice {runtime.voice!r}; there are: {known}",
            code="unsupported_voice",
            param="session.voice",
        )
