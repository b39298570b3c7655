"""The embedded model's hearing and answering half.

Rule 1: a unit counts as a whole or not at all. Everything it changes is computed on copies and
        kept only if no interrupt came meanwhile; the caller may send the same audio again.
Rule 2: one unit speaks one sentence at most, the first as soon as it is written.
Rule 3: the user is heard while an answer goes on; what was said is answered after it.
Rule 4: the event loop only coordinates: hearing and writing run in worker threads.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from session.config import RuntimeConfig
from session.errors import StageFailed
from session.ids import RequestId, SessionId
from session.tools import FunctionCall, ToolUse
from session.unit import Decision, Unit, UnitResult
from stages.contract import Appended, Speech
from stages.embedded.answer import MOST_SENTENCES, Answer, Sentence
from stages.embedded.conversation import Conversation
from stages.embedded.ear import Ear, EarSettings, Utterance
from stages.embedded.hearing import Heard, listen, recognise
from stages.embedded.ports import Networks, Writing
from stages.embedded.rules import Reply, Situation, answer_by_rule, asks_to_repeat
from stages.embedded.sentences import pack_sentences
from stages.embedded.settings import EmbeddedSettings
from stages.embedded.talk import Talk, Topic
from stages.embedded.tool_choice import choose_call
from stages.embedded.tool_outputs import say_outputs
from stages.embedded.weights import load_networks
from stages.embedded.writer import AnswerWriter

UNIT_MS: Final = 1000


@dataclass(slots=True)
class Session:
    """One session's state."""

    session_id: SessionId
    runtime: RuntimeConfig
    ear: Ear
    talk: Talk = field(default_factory=Talk)
    answer: Answer | None = None
    writers: "set[asyncio.Future[None]]" = field(default_factory=set)
    """Threads that write, those of dropped answers too: they end at their next token."""
    before_unit: tuple[Ear, Talk] | None = None
    """What was before the last unit, should it turn out not to count."""
    interrupts: int = 0
    is_asked: bool = False
    """The unit being worked on has begun a new turn."""
    calls: int = 0
    """Function calls so far, those of units that did not count too: no id comes twice. With the
    session's own id it makes an id that no other session has."""


@dataclass(slots=True)
class Work:
    """What one unit has made of the session so far."""

    ear: Ear
    talk: Talk
    interrupts: int
    heard: str = ""


class EmbeddedStage0:
    """Hears with Silero and Whisper, answers by rule or with SmolLM2."""

    def __init__(
        self,
        settings: EmbeddedSettings,
        clock: Callable[[], datetime],
        load: Callable[[EmbeddedSettings], Networks] = load_networks,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._load = load
        self._networks: Networks | None = None
        self._is_loaded = asyncio.Event()
        self._sessions: dict[SessionId, Session] = {}
        self._hearing = ThreadPoolExecutor(settings.hearing_workers, "hear")
        self._writing = ThreadPoolExecutor(settings.answering_workers, "write")

    async def warm_up(self) -> None:
        """Load weights and run each once; converts the language model on the very first start."""
        loop = asyncio.get_running_loop()
        self._networks = await loop.run_in_executor(self._hearing, self._load, self._settings)
        self._is_loaded.set()

    async def died(self) -> str:
        """Return why the language model is dead, once it is."""
        await self._is_loaded.wait()
        return await self._loaded().model.died()

    async def open(self, session_id: SessionId, runtime: RuntimeConfig) -> None:
        """Reserve what the session needs; on failure nothing stays."""
        settings = self._settings
        ear = Ear(
            self._loaded().vad,
            EarSettings(
                threshold=settings.speech_threshold,
                silence_ms=settings.silence_ms,
                min_speech_ms=settings.min_speech_ms,
                pre_roll_ms=settings.pre_roll_ms,
            ),
        )
        await self.close(session_id)
        self._sessions[session_id] = Session(session_id, runtime, ear)

    async def append(
        self, session_id: SessionId, unit: Unit, *, request_id: RequestId | None = None
    ) -> Appended:
        """Consume one unit and decide."""
        del request_id  # an interruption is told to whatever works for the session
        session = self._find(session_id)
        interrupts = session.interrupts
        work = Work(session.ear.copy(), session.talk, interrupts)
        try:
            appended = await self._work(session, work, unit)
        except BaseException:
            _drop_answer(session)
            raise
        finally:
            session.is_asked = False
        if session.interrupts != interrupts:
            _drop_answer(session)
            return _listen()
        session.before_unit = (session.ear, session.talk)
        session.ear, session.talk = work.ear, work.talk
        if appended.result.turn_end:
            session.answer = None
        return appended

    async def configure(self, session_id: SessionId, runtime: RuntimeConfig) -> None:
        """Replace the settings; they hold from the next answer on."""
        self._find(session_id).runtime = runtime

    async def interrupt(self, session_id: SessionId, heard: str, *, undoes_unit: bool) -> None:
        """Drop the answer in progress. The user heard only `heard` of it. May run during append."""
        session = self._sessions.get(session_id)
        if session is None:
            return
        session.interrupts += 1
        if undoes_unit and session.before_unit is not None:
            session.ear, session.talk = session.before_unit
        session.before_unit = None
        _drop_answer(session)
        # With nothing heard while a new question is looked at, it is that one's answer which is
        # cancelled, before its first word: what was said before stays said.
        cuts_answer = bool(heard) or not session.is_asked
        session.talk = session.talk.interrupted(heard, cuts_answer=cuts_answer)

    async def close(self, session_id: SessionId) -> None:
        """Release everything; unknown sessions are no error."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        session.interrupts += 1
        _drop_answer(session)
        if session.writers:
            await asyncio.wait(session.writers)
        # Not among the writers: it would wait for other sessions' answers.
        await asyncio.to_thread(self._loaded().model.forget, session_id)

    async def _work(self, session: Session, work: Work, unit: Unit) -> Appended:
        await self._hear(session, work, unit)
        if session.interrupts != work.interrupts:
            return _listen()
        if _is_forced_to_listen(session, work.talk, unit):
            if unit.is_continuation:
                # Silence goes on no longer for this answer: what is left of it is never said.
                _drop_answer(session)
                work.talk = work.talk.over()
                return _listen(turn_end=True)
            work.talk = replace(work.talk, units_in_turn=work.talk.units_in_turn + 1)
            return _listen(work.heard)
        if session.answer is None and _is_answer_due(session, work.talk, unit):
            call = self._begin_answer(session, work)
            if call is not None:
                return _call(work, call)
        if session.answer is None:
            is_end = unit.closes_input or unit.is_continuation
            work.talk = replace(
                work.talk,
                units_in_turn=work.talk.units_in_turn + 1,
                options=None if is_end else work.talk.options,
            )
            return _listen(work.heard, turn_end=is_end)
        answer = session.answer
        sentence = await answer.take()
        if sentence is None:
            return _listen(work.heard)
        return _speak(work, sentence, answer.speed)

    async def _hear(self, session: Session, work: Work, unit: Unit) -> None:
        """Advance the ear and add what the user said to the open question."""
        utterances: list[Utterance] = []
        loop = asyncio.get_running_loop()
        if not unit.is_fresh:  # it is about nothing that was said
            utterances = await loop.run_in_executor(self._hearing, listen, work.ear, unit, UNIT_MS)
        session.is_asked = session.answer is None and (bool(utterances) or _asks(unit))
        heard = Heard("", work.talk.unfinished)
        if utterances:
            whisper = self._loaded().whisper
            heard = await loop.run_in_executor(
                self._hearing, recognise, whisper, utterances, work.talk.unfinished
            )
        work.heard = heard.words
        work.talk = work.talk.told(unit, heard)

    def _begin_answer(self, session: Session, work: Work) -> FunctionCall | None:
        """Begin the next answer; return the function call that it is instead, if it is one."""
        topic = work.talk.topic()
        runtime = topic.options.apply_to(session.runtime)
        call = _called(session, topic, runtime)
        if call is not None:
            work.talk = work.talk.begun(topic, has_called=True).over()
            return call
        situation = Situation(self._clock(), topic.conversation.last_answer, topic.awaits_words)
        reply = _reply(topic, situation)
        if reply is None:
            session.answer = self._write_answer(session, runtime, topic.conversation)
        else:
            session.answer = self._known_answer(runtime, reply)
        session.answer.speed = topic.options.speed
        awaits_words = reply is not None and reply.awaits_words
        work.talk = work.talk.begun(topic, awaits_words=awaits_words)
        return None

    def _known_answer(self, runtime: RuntimeConfig, reply: Reply) -> Answer:
        sentences, limit = list(reply.sentences), runtime.max_output_tokens
        said = sentences
        if limit is not None:
            said = self._loaded().model.first_tokens(sentences, limit)
        packed = pack_sentences(said, MOST_SENTENCES)
        return Answer.of(packed, asyncio.get_running_loop(), is_cut=said != sentences)

    def _write_answer(
        self, session: Session, runtime: RuntimeConfig, conversation: Conversation
    ) -> Answer:
        model, settings = self._loaded().model, self._settings
        loop = asyncio.get_running_loop()
        answer = Answer(loop)
        prompt = model.prompt(runtime.instructions, conversation, settings.history_tokens)
        most_tokens = runtime.max_output_tokens or settings.answer_tokens
        writing = Writing(most_tokens, runtime.temperature, session.session_id)
        writer = AnswerWriter(answer, tells_cut=runtime.max_output_tokens is not None)
        work = loop.run_in_executor(self._writing, writer.write, model, prompt, writing)
        session.writers.add(work)
        work.add_done_callback(session.writers.discard)
        answer.write_with(work)
        return answer

    def _find(self, session_id: SessionId) -> Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise StageFailed(f"session {session_id} is not open")
        return session

    def _loaded(self) -> Networks:
        if self._networks is None:
            raise StageFailed("the models are not loaded yet; wait for warm_up")
        return self._networks


def _is_forced_to_listen(session: Session, talk: Talk, unit: Unit) -> bool:
    if unit.force_listen:
        return True
    return not unit.closes_input and talk.units_in_turn < session.runtime.force_listen_count


def _is_answer_due(session: Session, talk: Talk, unit: Unit) -> bool:
    return talk.is_due(unit, answers_by_itself=session.runtime.auto_response)


def _asks(unit: Unit) -> bool:
    """Whether a unit asks for an answer without a word being said."""
    return bool(unit.text or unit.tool_outputs) or unit.is_bare or unit.is_fresh


def _called(session: Session, topic: Topic, runtime: RuntimeConfig) -> FunctionCall | None:
    """Return the function call that the user's words ask for, if a function is offered for it."""
    if topic.outputs or not topic.may_call or not runtime.tools:
        return None
    must_call = runtime.tool_choice.use is ToolUse.REQUIRED
    if not must_call and (topic.awaits_words or asks_to_repeat(topic.words)):
        return None
    chosen = choose_call(topic.words, runtime)
    if chosen is None:
        return None
    session.calls += 1
    call_id = f"call_{session.session_id.removeprefix('sess_')}_{session.calls}"
    return FunctionCall(call_id, chosen.name, chosen.arguments)


def _reply(topic: Topic, situation: Situation) -> Reply | None:
    """Return what there is to say without the language model."""
    if topic.outputs:
        return Reply(tuple(say_outputs(topic.outputs)))
    return answer_by_rule(topic.words, situation) if topic.words else None


def _drop_answer(session: Session) -> None:
    if session.answer is not None:
        session.answer.stop()
        session.answer = None


def _listen(heard: str = "", *, turn_end: bool = False) -> Appended:
    return Appended(UnitResult(Decision.LISTEN, turn_end=turn_end, heard=heard), None)


def _call(work: Work, call: FunctionCall) -> Appended:
    """Call a function instead of saying anything."""
    result = UnitResult(
        Decision.SPEAK, segment_end=True, turn_end=True, heard=work.heard, calls=(call,)
    )
    return Appended(result, None)


def _speak(work: Work, sentence: Sentence, speed: float | None) -> Appended:
    """Say the sentence; within a turn it is set off from the one before."""
    is_first = not work.talk.conversation.is_answer_open
    text = sentence.text if is_first else f" {sentence.text}"
    work.talk = work.talk.said(text, is_last=sentence.is_last)
    result = UnitResult(
        Decision.SPEAK,
        text=text,
        segment_end=True,
        turn_end=sentence.is_last,
        is_cut=sentence.is_cut,
        heard=work.heard,
        metrics=sentence.metrics,
    )
    speech = Speech(text, segment_end=True, turn_end=sentence.is_last, speed=speed)
    return Appended(result, speech)
