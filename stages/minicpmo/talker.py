"""The talker's sessions: units of text and hidden rows become codes, turn by turn.

1. A session has one resumable request. A turn that begins, ends or is cut empties its memory; the
   end of a segment within the turn does not.
2. After a unit the memory is what it was before, its condition and the codes that are spoken. A
   unit that fails or is cancelled leaves the memory as it was.
3. Where a turn has no room for one unit more, its memory is made the unit before this one. A
   checkpoint that asks for it has that before each unit.
4. One unit of a session at a time. `cut` may come while one is spoken: that one is refused.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from session.errors import StageFailed
from session.ids import RequestId, SessionId
from stages.contract import Speech
from stages.engine.check import length
from stages.engine.engine import ResumableEngine
from stages.engine.errors import NotOpen, SegmentCancelled
from stages.engine.held_request import Listener
from stages.engine.values import (
    Embeddings,
    EngineCapacity,
    Ids,
    Pieces,
    Sampling,
    Segment,
    SegmentDone,
    SegmentTiming,
)
from stages.minicpmo.config import TtsConfig
from stages.minicpmo.talker_args import MODALITY
from stages.minicpmo.talker_condition import (
    ATTENTION_RECOMPUTES,
    TalkerCondition,
    require_followed,
)
from stages.minicpmo.talker_policy import TalkerSettings
from stages.minicpmo.talker_request import TalkerRequest
from stages.minicpmo.talker_unit import (
    Codes,
    TalkerLimits,
    TalkerRules,
    TalkerUnit,
    talker_limits,
)


@dataclass(frozen=True, slots=True)
class TalkerSetup:
    """What all units of a service are spoken with."""

    rules: TalkerRules
    settings: TalkerSettings
    stop: int
    """The stop code, the last of the checkpoint's codes."""
    session_tokens: int
    """Positions of the engine's memory that a turn may take."""
    recomputes: bool
    """Whether each unit has only the one before it in memory."""

    @classmethod
    def of(
        cls, tts: TtsConfig, rules: TalkerRules, settings: TalkerSettings, *, session_tokens: int
    ) -> Self:
        """Return the set-up of a checkpoint's talker, whose positions bound a turn too.

        Raises TalkerUnsupported.
        """
        require_followed(tts)
        return cls(
            rules=rules,
            settings=settings,
            stop=tts.num_audio_tokens - 1,
            session_tokens=min(session_tokens, tts.max_position_embeddings),
            recomputes=tts.attention_type == ATTENTION_RECOMPUTES,
        )


@dataclass(frozen=True, slots=True)
class UnitCodes:
    """What a unit is in codes, 25 a second."""

    codes: Codes
    first_position: int
    """Where its condition lies in the turn's memory."""
    timing: SegmentTiming


class _Turn:
    """What is known of a turn beside the engine's memory."""

    def __init__(self) -> None:
        self.before: Pieces = ()
        """The unit that was spoken last: its condition and its codes."""

    @property
    def is_new(self) -> bool:
        return not self.before


class Talker:
    """Speaks for many sessions on one engine."""

    def __init__(
        self, engine: ResumableEngine, condition: TalkerCondition, setup: TalkerSetup
    ) -> None:
        self._engine = engine
        self._condition = condition
        self._setup = setup
        self._turns: dict[SessionId, _Turn] = {}

    async def open(self, session_id: SessionId) -> None:
        """Reserve a slot and memory. Raises AdmissionRefused."""
        await self._engine.open(session_id)
        self._turns[session_id] = _Turn()

    async def speak(
        self,
        session_id: SessionId,
        speech: Speech,
        *,
        request_id: RequestId,
        seed: int | None,
        deadline_s: float,
        on_codes: Callable[[Codes], None] | None = None,
    ) -> UnitCodes:
        """Return a unit's codes; without a seed they are the likeliest.

        `on_codes` is told those that are there, each time that there are more and the unit goes
        on. They are the first ones of what is returned, unless the unit fails.

        Raises StageFailed, or StageRefused if the turn was cut meanwhile.
        """
        if speech.turn_start:
            await self.cut(session_id)
        turn = self._turn(session_id)
        rows = await asyncio.to_thread(self._condition.rows, speech.token_ids, speech.hidden)
        limits = talker_limits(
            self._setup.rules,
            stop=self._setup.stop,
            is_first=turn.is_new,
            is_last=speech.turn_end,
        )
        condition = Embeddings(MODALITY, rows)
        self._require_current(session_id, turn)
        await self._make_room(session_id, turn, len(condition) + limits.max_steps)
        self._require_current(session_id, turn)
        segment = self._segment(condition, limits, seed, (request_id, deadline_s))
        first = self._engine.held_tokens(session_id)
        before = self._engine.held(session_id)
        done = await self._engine.append(session_id, segment, _listener(limits, on_codes))
        self._require_current(session_id, turn)
        try:
            codes = _codes_of(done, limits)
        except StageFailed:
            await self._engine.replace(session_id, before)
            raise
        turn.before = (condition, Ids(codes))
        if speech.turn_end:
            await self.cut(session_id)
        return UnitCodes(codes, first, done.timing)

    async def cut(self, session_id: SessionId) -> None:
        """End the session's turn, whatever is spoken of it; the next unit begins a new one."""
        self._turn(session_id)
        self._turns[session_id] = _Turn()
        await self._engine.cancel(session_id)
        if self._engine.held_tokens(session_id):
            await self._engine.replace(session_id, ())

    async def close(self, session_id: SessionId) -> None:
        """Release everything; unknown sessions are no error."""
        self._turns.pop(session_id, None)
        await self._engine.close(session_id)

    def capacity(self) -> EngineCapacity:
        """Return what is left."""
        return self._engine.capacity()

    async def died(self) -> str:
        """Return why it can serve nobody any more, once that is so."""
        return await self._engine.died()

    def _turn(self, session_id: SessionId) -> _Turn:
        turn = self._turns.get(session_id)
        if turn is None:
            raise NotOpen(f"session {session_id} is not open")
        return turn

    def _require_current(self, session_id: SessionId, turn: _Turn) -> None:
        if self._turns.get(session_id) is not turn:
            raise SegmentCancelled("the turn was cut")

    async def _make_room(self, session_id: SessionId, turn: _Turn, needed: int) -> None:
        held, room = self._engine.held_tokens(session_id), self._setup.session_tokens
        if held + needed <= room and not self._setup.recomputes and not turn.is_new:
            return
        kept = turn.before if length(turn.before) + needed <= room else ()
        if held != length(kept):  # a new turn's memory is empty, unless a cut was broken off
            await self._engine.replace(session_id, kept)

    def _segment(
        self,
        condition: Embeddings,
        limits: TalkerLimits,
        seed: int | None,
        name: tuple[RequestId, float],
    ) -> Segment:
        request = TalkerRequest(limits=limits, settings=self._setup.settings, seed=seed)
        sampling = Sampling(
            max_tokens=limits.max_steps,
            stop_token_ids=(limits.stop, limits.broken),
            extra_args=request.to_extra_args(),
        )
        request_id, deadline_s = name
        return Segment(request_id, (condition,), sampling, deadline_s)


def _listener(limits: TalkerLimits, on_codes: Callable[[Codes], None] | None) -> Listener | None:
    if on_codes is None:
        return None

    # The id that stands for no code ends the segment, so it is never among what is told.
    return lambda sampled: on_codes(TalkerUnit(limits, sampled).codes)


def _codes_of(done: SegmentDone, limits: TalkerLimits) -> Codes:
    """Return what is spoken of a segment; StageFailed if a code could not be chosen."""
    if limits.broken in done.token_ids:
        raise StageFailed(f"no code could be chosen at step {done.token_ids.index(limits.broken)}")
    unit = TalkerUnit(limits, done.token_ids)
    if not unit.is_over:
        raise StageFailed(f"the engine stopped after {unit.step} codes of {limits.max_steps}")
    return unit.codes
