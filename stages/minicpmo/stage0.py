"""MiniCPM-o's hearing and deciding half: each second it listens or speaks.

Rule 1: a session's memory is one value (`stages.minicpmo.conversation`). A unit that ends well puts
        a new value in its place; one that fails or is cancelled leaves the old one, and the
        language model and the encoder hold what that one says, or are made to.
Rule 2: an interruption first stops what runs. Then the answer is cut to what was heard, and what
        the language model holds is made anew in the time before the next unit.
Rule 3: before a unit, room for the longest that it can become; after it, what the window leaves.
Rule 4: the settings of an answer end with its turn.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from session.config import AnswerSettings, RuntimeConfig
from session.errors import StageFailed, StageRefused, StageUnavailable, UnsupportedOption
from session.ids import RequestId, SessionId
from session.unit import Unit
from stages.contract import Appended, TokenMemory
from stages.engine.values import Embeddings, Piece
from stages.minicpmo.conversation import (
    Context,
    Conversation,
    carried_out,
    held_pieces,
    memory_of,
    next_pieces,
    slid,
    with_silent_unit,
    with_unit,
)
from stages.minicpmo.heard import cut_to_heard
from stages.minicpmo.layout import context_text, unit_length
from stages.minicpmo.loaded import Load, Loaded
from stages.minicpmo.ports import Heard, Question
from stages.minicpmo.settings import MiniCPMOSettings
from stages.minicpmo.unit_answer import UNIT_BYTES, answer, seed_of, whole_seconds
from stages.minicpmo.unit_decoder import Tokens, UnitRules
from stages.minicpmo.voice_pcm import used_of_recording
from stages.minicpmo.windows import (
    MARKER_TEXT,
    EndSession,
    Proceed,
    RollOver,
    Window,
    WindowOff,
    guard,
    with_own_slack,
)

UNIT_S: Final = 1.0
_WARM_UP: Final = SessionId("warm-up")
_WARM_UP_UNITS: Final = 3


@dataclass(slots=True)
class _Session:
    """One session's memory, and what is going on in it."""

    runtime: RuntimeConfig
    rules: UnitRules
    conversation: Conversation
    window: Window
    before: Conversation | None = None
    """The value before the newest unit, as long as that can be undone."""
    options: AnswerSettings | None = None
    """Of the answer that was asked for or is being given."""
    interrupts: int = 0
    deadline_s: float = 0.0
    preparing: set[asyncio.Task[None]] = field(default_factory=set)


class MiniCPMOStage0:
    """Implements `stages.contract.Stage0Model`."""

    def __init__(self, settings: MiniCPMOSettings, load: Load, now: Callable[[], float]) -> None:
        """`now` is monotonic, in seconds, and the clock that deadlines are told by."""
        self._settings = settings
        self._load = load
        self._now = now
        self._loaded: Loaded | None = None
        self._sessions: dict[SessionId, _Session] = {}

    async def warm_up(self) -> None:
        """Load everything and let a conversation with nobody pass."""
        self._loaded = await self._load(self._settings)
        await self.open(_WARM_UP, RuntimeConfig())
        try:
            for number in range(_WARM_UP_UNITS):
                name = RequestId(f"{_WARM_UP}/{number}")
                await self.append(_WARM_UP, Unit(bytes(UNIT_BYTES)), request_id=name)
        finally:
            await self.close(_WARM_UP)

    def token_memory(self) -> TokenMemory:
        """Return how full the engine's memory is."""
        return self._ready().language.capacity().tokens

    async def died(self) -> str:
        """Return why the engine is dead or stuck, once it is."""
        return await self._ready().language.died()

    async def open(self, session_id: SessionId, runtime: RuntimeConfig) -> None:
        """Reserve memory everywhere, and begin to feed the context."""
        await self.restore(session_id, runtime, ())

    async def restore(
        self, session_id: SessionId, runtime: RuntimeConfig, said: Sequence[str]
    ) -> None:
        """Open a session that goes on elsewhere began: `said` is what the user heard, oldest first.

        The audio of that time is gone; the words stand where a context window carries them.
        """
        loaded = self._ready()
        if session_id in self._sessions:
            raise StageRefused("the session is open already")
        self._check(runtime)
        context = await self._context(runtime)
        conversation = Conversation(context, self._carried(said), place=loaded.ear.new_place())
        await loaded.language.open(session_id)
        try:
            await loaded.language.replace(
                session_id, held_pieces(conversation, loaded.tokenizer.specials)
            )
        except BaseException:
            await loaded.language.close(session_id)
            raise
        session = _Session(
            runtime, self._rules(runtime), conversation, with_own_slack(loaded.window, session_id)
        )
        self._sessions[session_id] = session
        self._prepare(session_id, session)

    def snapshot(self, session_id: SessionId) -> tuple[str, ...]:
        """Return what `restore` takes: the model's words that it still remembers, oldest first."""
        conversation = self._find(session_id).conversation
        decode = self._ready().tokenizer.decode
        carried = decode(self._without_marker(conversation.carried))
        return tuple(text for text in (carried, *(u.shown for u in conversation.units)) if text)

    def conversation(self, session_id: SessionId) -> Conversation:
        """Return what is remembered of a session."""
        return self._find(session_id).conversation

    async def append(self, session_id: SessionId, unit: Unit, *, request_id: RequestId) -> Appended:
        """Consume one unit and decide."""
        loaded, session = self._ready(), self._find(session_id)
        interrupts = session.interrupts
        if unit.text or unit.tool_outputs or unit.messages or unit.is_fresh:
            raise StageFailed("this model hears and sees; it can not be written to")
        pcm = whole_seconds(unit.pcm)
        pictures = [one for group in unit.video_frames for one in group]
        if len(pictures) > self._settings.max_frames:
            raise StageFailed(
                f"{len(pictures)} pictures in one unit, the most is {self._settings.max_frames}"
            )
        # Before any work is done: what can not fit is not even looked at.
        before = self._with_room(
            session.conversation,
            session.rules,
            seconds=len(pcm) // UNIT_BYTES,
            frames=len(pictures),
        )
        heard = await loaded.ear.hear(before.place, before.mel, pcm)
        frames = await loaded.ear.see(pictures)
        _check_still_wanted(session, interrupts)
        if before is not session.conversation:
            session.before, session.conversation = None, before
            await self._hold(session_id, session, before)
            _check_still_wanted(session, interrupts)
        options = unit.options if unit.closes_input else session.options
        if options is not None:
            self._check(options.apply_to(session.runtime))
        conversation, pieces = self._listened_to(before, heard)
        pieces += next_pieces(conversation, frames, heard.seconds[-1], loaded.tokenizer.specials)
        question = self._question(session, request_id, tuple(pieces), conversation, options)
        if unit.force_listen:
            question = replace(question, must_listen=True)
        thought = await loaded.language.think(session_id, question)
        _check_still_wanted(session, interrupts)
        after = with_unit(
            conversation, frames, heard.seconds[-1], thought.ended, loaded.tokenizer.decode
        )
        text = after.units[-1].shown
        after = replace(after, mel=heard.mel, place=heard.place)
        left = slid(after, session.window, loaded.counts, loaded.tokenizer.special_ids)
        if left is not after:
            await self._hold(session_id, session, left)
            _check_still_wanted(session, interrupts)
        session.before, session.conversation = before, left
        is_over = thought.ended.is_end_of_turn or (before.is_answering and not after.is_answering)
        session.options = None if is_over else options
        return answer(thought, text, request_id, is_start=not before.is_answering, is_over=is_over)

    async def configure(self, session_id: SessionId, runtime: RuntimeConfig) -> None:
        """Take new settings; new instructions stand in front of everything from now on."""
        session = self._find(session_id)
        self._check(runtime)
        rules = self._rules(runtime)
        if runtime.instructions != session.runtime.instructions:
            context = await self._context(runtime, reference=session.conversation.context.reference)
            conversation = replace(session.conversation, context=context)
            conversation = self._with_room(conversation, rules)
            session.before, session.conversation = None, conversation
            await self._hold(session_id, session, conversation)
        session.runtime, session.rules = runtime, rules

    async def interrupt(self, session_id: SessionId, heard: str, *, undoes_unit: bool) -> None:
        """Stop, and remember the answer in progress as far as it was heard."""
        session = self._sessions.get(session_id)
        if session is None:
            return
        loaded = self._ready()
        session.interrupts += 1
        await loaded.language.cancel(session_id)
        conversation = session.conversation
        if undoes_unit and session.before is not None:
            conversation = session.before
        tokenizer = loaded.tokenizer
        session.conversation = cut_to_heard(
            conversation, heard, tokenizer.specials, tokenizer.decode
        )
        session.before = None
        session.options = None
        await self._hold(session_id, session, session.conversation)

    async def close(self, session_id: SessionId) -> None:
        """Release everything; unknown sessions are no error."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        await self._ready().language.close(session_id)
        if session.preparing:
            await asyncio.wait(session.preparing)

    def _ready(self) -> Loaded:
        if self._loaded is None:
            raise StageUnavailable("the model is not loaded yet")
        return self._loaded

    def _find(self, session_id: SessionId) -> _Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise StageRefused("the session is not open at this model")
        return session

    def _rules(self, runtime: RuntimeConfig) -> UnitRules:
        decoding = self._settings.decoding
        return UnitRules(
            max_steps=decoding.max_steps,
            max_characters=decoding.max_characters,
            listens_at_first=runtime.force_listen_count,
            history_window=decoding.decode_settings().repetition_window,
        )

    def _check(self, runtime: RuntimeConfig) -> None:
        temperature = runtime.temperature
        if temperature is not None and not 0 < temperature <= 2:
            raise UnsupportedOption(
                "the temperature must be above 0 and at most 2", param="session.temperature"
            )
        if runtime.force_listen_count < 0:
            raise UnsupportedOption(
                "force_listen_count must not be negative", param="session.force_listen_count"
            )

    async def _context(
        self, runtime: RuntimeConfig, reference: Embeddings | None = None
    ) -> Context:
        loaded = self._ready()
        if reference is None:
            sample = used_of_recording(runtime.voice_sample, self._settings.voice.prompt_s)
            reference = await loaded.ear.learn_voice(sample) if sample else loaded.own_voice
        text = context_text(
            runtime.instructions or self._settings.instructions,
            has_reference=reference is not None,
            special_texts=loaded.tokenizer.special_texts,
        )
        context = Context(
            loaded.tokenizer.encode(text.prefix), reference, loaded.tokenizer.encode(text.suffix)
        )
        most = self._settings.language_model.session_tokens // 2
        if len(context) > most:
            raise UnsupportedOption(
                f"instructions and voice take {len(context)} tokens, the most is {most}",
                param="session.instructions",
            )
        return context

    def _question(
        self,
        session: _Session,
        request_id: RequestId,
        pieces: tuple[Piece, ...],
        conversation: Conversation,
        options: AnswerSettings | None,
    ) -> Question:
        decoding = self._settings.decoding
        runtime = session.runtime if options is None else options.apply_to(session.runtime)
        decode = decoding.decode_settings()
        if runtime.temperature is not None:
            decode = replace(decode, temperature=runtime.temperature)
        session.deadline_s = max(self._now(), session.deadline_s) + UNIT_S
        return Question(
            request_id=request_id,
            pieces=pieces,
            speech=conversation.speech,
            must_listen=False,
            decode=decode,
            is_greedy=decoding.greedy,
            rules=session.rules,
            seed=seed_of(request_id),
            deadline_s=session.deadline_s,
        )

    def _listened_to(
        self, conversation: Conversation, heard: Heard
    ) -> tuple[Conversation, list[Piece]]:
        """Take all seconds but the last as listened to; only the last is decided on."""
        tokens = self._ready().tokenizer.specials
        pieces: list[Piece] = []
        for audio in heard.seconds[:-1]:
            pieces += next_pieces(conversation, (), audio, tokens)
            conversation = with_silent_unit(conversation, (), audio, tokens)
        return conversation, pieces

    def _with_room(
        self, conversation: Conversation, rules: UnitRules, *, seconds: int = 1, frames: int = 0
    ) -> Conversation:
        """Return what of the conversation leaves room for the longest that an append can become."""
        loaded = self._ready()
        needed = unit_length(loaded.counts, frames=frames, fed=rules.max_steps - 1)
        needed += (seconds - 1) * unit_length(loaded.counts, frames=0, fed=0)
        verdict = guard(
            memory_of(conversation, loaded.counts),
            loaded.window,
            loaded.tokenizer.special_ids,
            needed=needed,
            max_model_len=self._settings.language_model.session_tokens,
        )
        match verdict:
            case Proceed():
                return conversation
            case RollOver(plan=plan):
                return carried_out(conversation, plan)
            case EndSession(most=most, limit=limit):
                if isinstance(loaded.window, WindowOff):
                    raise StageUnavailable(
                        f"the conversation would need {most} positions and has {limit}: it is too "
                        "long; a window (model_settings.window) would let it go on",
                        code="context_length_exceeded",
                    )
                raise StageFailed(
                    f"the unit does not fit: with what has to stay it needs {most} positions, and "
                    f"a session has {limit}; send less at once",
                    code="unit_too_long",
                )

    async def _hold(
        self, session_id: SessionId, session: _Session, conversation: Conversation
    ) -> None:
        """Make the language model hold what a conversation says, in the idle time if it can."""
        loaded = self._ready()
        pieces = held_pieces(conversation, loaded.tokenizer.specials)
        await loaded.language.cancel(session_id)
        await loaded.language.replace(session_id, pieces)
        self._prepare(session_id, session)

    def _prepare(self, session_id: SessionId, session: _Session) -> None:
        work = self._prepared(session_id)
        task = asyncio.create_task(work)  # noqa: TID251 - ends by itself, or by a cancel or close
        session.preparing.add(task)
        task.add_done_callback(session.preparing.discard)

    async def _prepared(self, session_id: SessionId) -> None:
        try:
            await self._ready().language.prepare(session_id)
        except (StageRefused, StageFailed, StageUnavailable):
            return  # whoever needs it will do it, or fail with a better reason

    def _carried(self, said: Sequence[str]) -> Tokens:
        tokenizer = self._ready().tokenizer
        words = tokenizer.encode("".join(said))
        words = tuple(token for token in words if token not in tokenizer.special_ids)
        most = self._settings.window.carried_tokens
        words = words[max(0, len(words) - most) :]
        return (*self._marker(), *words) if words else ()

    def _without_marker(self, carried: Tokens) -> Tokens:
        return carried[len(self._marker()) :] if carried else ()

    def _marker(self) -> Tokens:
        return self._ready().tokenizer.encode(MARKER_TEXT)


def _check_still_wanted(session: _Session, interrupts: int) -> None:
    if session.interrupts != interrupts:
        raise StageRefused("the unit was interrupted")
