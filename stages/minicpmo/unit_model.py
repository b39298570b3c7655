"""The language model a unit at a time: the engine's segments and the tap's records, joined.

Rule 1: a unit's record is registered before its segment goes in, and dropped whatever becomes of
        it. What arrives under any other name is nobody's.
Rule 2: what the worker still knows of a unit when it failed, or of a session's last unit when the
        session is closed, is forgotten there, too: an idle worker looks at nothing by itself.
Rule 3: a unit counts when its segment and its record agree. Where they do not, or the record says
        that the unit broke, the engine is made to hold what it held before.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

from session.errors import StageFailed, StageTimeout
from session.ids import RequestId, SessionId
from stages.engine.engine import ResumableEngine
from stages.engine.errors import EngineDied, WorkerFailed
from stages.engine.values import EngineCapacity, Ids, Pieces, Sampling, Segment, SegmentDone
from stages.minicpmo.policy_request import PolicyRequest
from stages.minicpmo.ports import Question, Thought
from stages.minicpmo.special_tokens import SpecialTokens
from stages.minicpmo.tap import TapReceiver
from stages.minicpmo.unit_record import UnitRecord

RECORD_TIMEOUT_S: Final = 10.0
"""A record is sent before its unit's last token is; one that is so late was lost."""


class EngineUnitModel:
    """Implements `stages.minicpmo.ports.UnitModel`."""

    def __init__(self, engine: ResumableEngine, tap: TapReceiver, tokens: SpecialTokens) -> None:
        self._engine = engine
        self._tap = tap
        self._newest: dict[SessionId, RequestId] = {}
        """Each session's last unit, of which the worker may know something."""
        self._terminators = tuple(sorted(tokens.terminators))

    async def open(self, session_id: SessionId) -> None:
        """Reserve a slot and memory. Raises AdmissionRefused."""
        await self._engine.open(session_id)

    async def think(self, session_id: SessionId, question: Question) -> Thought:
        """Feed a unit and decode it. Raises StageFailed, or StageRefused when cancelled."""
        segment = self._segment(question)
        held = self._engine.held(session_id)
        self._tap.register(question.request_id)
        self._newest[session_id] = question.request_id
        try:
            done = await self._engine.append(session_id, segment)
            fed = self._engine.held(session_id)
            try:
                record = await self._record(question)
                _check_agreement(done, record)
            except BaseException:
                # Unless an interruption has made it something else meanwhile.
                if self._engine.held(session_id) == fed:
                    await self._engine.replace(session_id, held)
                raise
        except BaseException:
            await self._forget(session_id)
            raise
        finally:
            self._tap.unregister(question.request_id)
        return Thought(record.ended, record.hidden, done.timing)

    async def replace(self, session_id: SessionId, pieces: Pieces) -> None:
        """Hold exactly `pieces` from now on; nothing is done if that is so already."""
        if list(_positions(self._engine.held(session_id))) != list(_positions(pieces)):
            await self._engine.replace(session_id, pieces)

    async def prepare(self, session_id: SessionId) -> None:
        """Do now what a replacement leaves to be done in front of the next unit."""
        await self._engine.prepare(session_id)

    async def cancel(self, session_id: SessionId) -> None:
        """Stop what runs for a session; the engine does nothing for it any more on return."""
        await self._engine.cancel(session_id)

    async def close(self, session_id: SessionId) -> None:
        """Release everything; unknown sessions are no error."""
        await self._engine.close(session_id)
        await self._forget(session_id)

    def capacity(self) -> EngineCapacity:
        """Return what is left."""
        return self._engine.capacity()

    async def died(self) -> str:
        """Return why it can serve nobody any more, once that is so."""
        return await self._engine.died()

    async def _forget(self, session_id: SessionId) -> None:
        newest = self._newest.pop(session_id, None)
        if newest is not None:
            with contextlib.suppress(WorkerFailed, EngineDied):  # the dead remember nothing
                await self._engine.call_worker("tap_forget", [newest])

    def _segment(self, question: Question) -> Segment:
        request = PolicyRequest(
            request_id=question.request_id,
            seed=None if question.is_greedy else question.seed,
            must_listen=question.must_listen,
            speech=question.speech,
            settings=question.decode,
            rules=question.rules,
        )
        sampling = Sampling(
            max_tokens=question.rules.max_steps,
            stop_token_ids=self._terminators,
            extra_args=request.to_extra_args(),
        )
        return Segment(question.request_id, question.pieces, sampling, question.deadline_s)

    async def _record(self, question: Question) -> UnitRecord:
        try:
            async with asyncio.timeout(RECORD_TIMEOUT_S):
                return await self._tap.take(question.request_id)
        except TimeoutError as error:
            raise StageTimeout(
                f"the record of {question.request_id} did not come from the engine's worker"
            ) from error


def _check_agreement(done: SegmentDone, record: UnitRecord) -> None:
    ended = record.ended
    if done.token_ids != (*ended.fed, ended.terminator):
        raise StageFailed(
            f"the engine sampled {done.token_ids}, but {(*ended.fed, ended.terminator)} "
            "was decided: the unit does not count"
        )


def _positions(pieces: Pieces) -> Iterator[int | tuple[int, int]]:
    """Yield what stands at each position: an id, or which row of which embeddings."""
    for piece in pieces:
        if isinstance(piece, Ids):
            yield from piece.ids
        else:
            yield from ((id(piece.rows), row) for row in range(len(piece)))
