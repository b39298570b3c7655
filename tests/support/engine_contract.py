"""What the engine must do on any backend, as tests that a backend's own test module inherits.

A subclass overrides the fixture `rig`. Its name must begin with `Test`.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import pytest
import torch

from session.ids import RequestId
from stages.engine.engine import ResumableEngine
from stages.engine.errors import (
    BadSegment,
    EngineFull,
    MemoryFull,
    NotOpen,
    SegmentCancelled,
    SegmentFailed,
)
from stages.engine.values import (
    Embeddings,
    Ids,
    Pieces,
    Sampling,
    Segment,
    SegmentDone,
    StopReason,
    Tokens,
)

ROWS = 10
"""Rows of one unit of sound."""
STEPS = 4
"""Tokens that a unit samples."""


@dataclass(slots=True)
class EngineRig:
    """A running engine, and what its tests must know of the model."""

    engine: ResumableEngine
    hidden: int
    first_id: int
    """This id and the 40 above it are ordinary."""
    vocab: int
    session_tokens: int
    max_sessions: int
    deadline_s: float = 0.0
    names: list[str] = field(default_factory=list)

    def unit(self, voice: int, number: int, last: Tokens = ()) -> Pieces:
        """Return a unit's input: the token before it, a mark, a sound of `voice`."""
        random = torch.Generator().manual_seed(1000 * voice + number)
        rows = torch.randn(ROWS, self.hidden, generator=random)
        return (Ids((*last, self.first_id + number % 40)), Embeddings("audio", rows))

    def segment(
        self, pieces: Pieces, max_tokens: int = STEPS, stop_token_ids: Tokens = ()
    ) -> Segment:
        """Return a segment with a name of its own, due after all before it."""
        self.deadline_s += 1
        self.names.append(f"segment-{len(self.names)}")
        sampling = Sampling(max_tokens=max_tokens, stop_token_ids=stop_token_ids)
        return Segment(RequestId(self.names[-1]), pieces, sampling, self.deadline_s)

    async def unheard(self, pieces: Pieces) -> Segment:
        """Return a segment that passes every check of ours and that the backend refuses."""
        raise NotImplementedError

    async def inside(self, key: str, segment: Segment) -> "asyncio.Task[SegmentDone]":
        """Begin a long segment; return its task once the backend works at it."""
        raise NotImplementedError

    async def go_on(self) -> None:
        """Let a segment that `inside` began end by itself."""

    async def held_now(self) -> list[str]:
        """Return what the backend holds of requests, as texts."""
        raise NotImplementedError

    async def still_held(self) -> list[str]:
        """Return what it holds once it has had the time for a step."""
        return await self.held_now()

    async def say(self, key: str, voice: int, numbers: Sequence[int]) -> list[Tokens]:
        """Append units to an open session, each with the token before it; return their tokens."""
        said: list[Tokens] = []
        for number in numbers:
            last = said[-1][-1:] if said else ()
            done = await self.engine.append(key, self.segment(self.unit(voice, number, last)))
            said.append(done.token_ids)
        return said

    async def alone(self, key: str, voice: int, units: int) -> list[Tokens]:
        """Return what a session of so many units says when there is no other."""
        await self.engine.open(key)
        said = await self.say(key, voice, range(units))
        await self.engine.close(key)
        return said

    async def goes_on(self, key: str, voice: int, said: list[Tokens], number: int) -> Tokens:
        """Append unit `number` behind what was said; return its tokens."""
        unit = self.unit(voice, number, said[-1][-1:])
        return (await self.engine.append(key, self.segment(unit))).token_ids

    async def close_all(self) -> None:
        """Close all sessions that a test may have opened."""
        for number in range(20):
            for name in ("a", "b"):
                await self.engine.close(f"{name}{number}")
        assert self.engine.capacity().kv_tokens_reserved == 0


class EngineContract:
    """Tests of the engine."""

    @pytest.fixture
    def rig(self) -> EngineRig:
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    async def all_closed(self, rig: EngineRig) -> AsyncIterator[None]:
        yield
        await rig.close_all()

    async def test_fifty_segments_equal_one_long_prompt(self, rig: EngineRig) -> None:
        await rig.engine.open("a0")
        said = await rig.say("a0", 1, range(50))
        before = rig.engine.held("a0")
        tail = await rig.goes_on("a0", 1, said, 50)
        assert len(set(said)) > 10, "a model that always says the same would prove nothing"
        await rig.engine.open("a1")
        prompt = (*before, *rig.unit(1, 50, said[-1][-1:]))
        done = await rig.engine.append("a1", rig.segment(prompt))
        assert done.token_ids == tail
        assert rig.engine.held_tokens("a0") == rig.engine.held_tokens("a1")
        # Each unit of ten rows, the token before it and a mark, and what it said but the last.
        assert rig.engine.held_tokens("a0") == 51 * (ROWS + 1 + STEPS) - 1

    async def test_eight_sessions_interleaved_equal_themselves_alone(self, rig: EngineRig) -> None:
        alone = [await rig.alone(f"a{voice}", voice, 6) for voice in range(8)]
        for voice in range(8):
            await rig.engine.open(f"b{voice}")
        together = await asyncio.gather(
            *(rig.say(f"b{voice}", voice, range(6)) for voice in range(8))
        )
        assert together == alone
        assert len({tuple(one) for one in alone}) == 8

    async def test_the_last_token_is_not_in_the_memory(self, rig: EngineRig) -> None:
        await rig.engine.open("a0")
        done = await rig.engine.append("a0", rig.segment(rig.unit(1, 0)))
        assert len(done.token_ids) == STEPS
        assert done.stop is StopReason.LENGTH
        assert rig.engine.held("a0")[-1] == Ids(done.token_ids[:-1])

    async def test_a_stop_token_ends_a_segment_and_is_its_last(self, rig: EngineRig) -> None:
        free = (await rig.alone("a0", 1, 1))[0]
        stop = next(token for token in free[1:] if token != free[0])
        await rig.engine.open("a1")
        segment = rig.segment(rig.unit(1, 0), stop_token_ids=(stop,))
        done = await rig.engine.append("a1", segment)
        assert done.token_ids == free[: free.index(stop) + 1]
        assert done.stop is StopReason.STOP_TOKEN
        assert done.request_id == segment.request_id

    async def test_a_cancelled_segment_leaves_the_memory_as_it_was(self, rig: EngineRig) -> None:
        expected = await rig.alone("a0", 1, 5)
        await rig.engine.open("a1")
        said = await rig.say("a1", 1, range(3))
        before = rig.engine.held("a1")
        append = await rig.inside("a1", rig.segment(rig.unit(9, 9), 100))
        assert await rig.engine.cancel("a1")
        with pytest.raises(SegmentCancelled):
            await append
        assert rig.engine.held("a1") == before
        assert await rig.still_held() == []
        said.append(await rig.goes_on("a1", 1, said, 3))
        said.append(await rig.goes_on("a1", 1, said, 4))
        assert said == expected

    async def test_cancelling_the_task_of_an_append_cancels_it(self, rig: EngineRig) -> None:
        expected = await rig.alone("a0", 1, 4)
        await rig.engine.open("a1")
        said = await rig.say("a1", 1, range(3))
        append = await rig.inside("a1", rig.segment(rig.unit(9, 9), 100))
        append.cancel()
        with pytest.raises(asyncio.CancelledError):
            await append
        said.append(await rig.goes_on("a1", 1, said, 3))
        assert said == expected

    async def test_a_refused_segment_leaves_the_memory_as_it_was(self, rig: EngineRig) -> None:
        expected = await rig.alone("a0", 1, 4)
        await rig.engine.open("a1")
        said = await rig.say("a1", 1, range(3))
        before = rig.engine.held("a1")
        with pytest.raises(SegmentFailed):
            await rig.engine.append("a1", await rig.unheard(rig.unit(9, 9)))
        assert rig.engine.held("a1") == before
        said.append(await rig.goes_on("a1", 1, said, 3))
        assert said == expected

    async def test_a_refused_first_segment_leaves_an_empty_memory(self, rig: EngineRig) -> None:
        expected = await rig.alone("a0", 1, 1)
        await rig.engine.open("a1")
        with pytest.raises(SegmentFailed):
            await rig.engine.append("a1", await rig.unheard(rig.unit(9, 9)))
        assert rig.engine.held("a1") == ()
        assert await rig.say("a1", 1, range(1)) == expected

    async def test_a_memory_can_be_rebuilt_ahead_of_time(self, rig: EngineRig) -> None:
        expected = await rig.alone("a0", 1, 4)
        await rig.engine.open("a1")
        said = await rig.say("a1", 1, range(3))
        before = rig.engine.held("a1")
        await rig.engine.prepare("a1")  # there is nothing to rebuild
        append = await rig.inside("a1", rig.segment(rig.unit(9, 9), 100))
        await rig.engine.cancel("a1")
        await asyncio.gather(append, return_exceptions=True)
        await rig.engine.prepare("a1")
        assert rig.engine.held("a1") == before
        assert await rig.held_now()
        said.append(await rig.goes_on("a1", 1, said, 3))
        assert said == expected

    async def test_a_memory_can_be_replaced(self, rig: EngineRig) -> None:
        await rig.engine.open("a0")
        said = await rig.say("a0", 1, range(6))
        window = (Ids((rig.first_id,)), *rig.engine.held("a0")[-3:])
        await rig.engine.replace("a0", window)
        assert rig.engine.held_tokens("a0") == sum(len(piece) for piece in window)
        tail = await rig.goes_on("a0", 1, said, 6)
        await rig.engine.open("a1")
        prompt = (*window, *rig.unit(1, 6, said[-1][-1:]))
        assert (await rig.engine.append("a1", rig.segment(prompt))).token_ids == tail

    async def test_positions_are_guarded(self, rig: EngineRig) -> None:
        await rig.engine.open("a0")
        await rig.engine.open("b0")
        said = await rig.say("a0", 1, range(2))
        expected = await rig.alone("a1", 1, 4)
        held = rig.engine.held_tokens("a0")
        room = rig.session_tokens - held
        filler = (Ids((rig.first_id,) * (room - STEPS + 1)),)
        with pytest.raises(MemoryFull):
            await rig.engine.append("a0", rig.segment(filler))
        assert rig.engine.held_tokens("a0") == held
        said.append(await rig.goes_on("a0", 1, said, 2))
        assert (await rig.say("b0", 1, range(4))) == expected
        said.append(await rig.goes_on("a0", 1, said, 3))
        assert said == expected

    async def test_a_memory_may_be_filled_to_the_last_position(self, rig: EngineRig) -> None:
        await rig.engine.open("a0")
        await rig.say("a0", 1, range(2))
        room = rig.session_tokens - rig.engine.held_tokens("a0")
        filler = (Ids((rig.first_id,) * (room - STEPS)),)
        done = await rig.engine.append("a0", rig.segment(filler))
        assert len(done.token_ids) == STEPS
        assert rig.engine.held_tokens("a0") == rig.session_tokens - 1
        with pytest.raises(MemoryFull):
            await rig.engine.append("a0", rig.segment((Ids((rig.first_id,)),), 1))
        with pytest.raises(MemoryFull):
            await rig.engine.replace("a0", (Ids((rig.first_id,) * rig.session_tokens),))

    async def test_what_can_not_be_fed_is_refused(self, rig: EngineRig) -> None:
        await rig.engine.open("a0")
        said = await rig.say("a0", 1, range(1))
        nan = torch.zeros(ROWS, rig.hidden)
        nan[3, 1] = torch.nan
        bad: list[Pieces] = [
            (),
            (Ids(()),),
            (Ids((rig.vocab,)),),
            (Ids((-1,)),),
            (Embeddings("audio", nan),),
            (Embeddings("audio", torch.zeros(ROWS, rig.hidden + 1)),),
            (Embeddings("audio", torch.zeros(0, rig.hidden)),),
            (Embeddings("audio", torch.zeros(rig.hidden)),),
            (Embeddings("audio", torch.zeros(ROWS, rig.hidden, dtype=torch.float64)),),
            (Embeddings("audio", torch.zeros(rig.hidden, ROWS).T),),
            (Embeddings("smell", torch.zeros(ROWS, rig.hidden)),),
        ]
        for pieces in bad:
            with pytest.raises(BadSegment):
                await rig.engine.append("a0", rig.segment(pieces))
        for sampling in (rig.segment(rig.unit(1, 1), 0), rig.segment(rig.unit(1, 1), 1, (-1,))):
            with pytest.raises(BadSegment):
                await rig.engine.append("a0", sampling)
        said.append(await rig.goes_on("a0", 1, said, 1))
        assert said == await rig.alone("a1", 1, 2)

    async def test_full_is_said_at_once_and_a_close_makes_room(self, rig: EngineRig) -> None:
        places = rig.engine.capacity().max_sessions
        assert places == rig.max_sessions
        for number in range(places):
            await rig.engine.open(f"a{number}")
        with pytest.raises(EngineFull):
            await rig.engine.open("b0")
        said = await rig.say("a0", 1, range(1))
        capacity = rig.engine.capacity()
        assert capacity.open_sessions == places
        assert capacity.kv_tokens_reserved <= capacity.kv_tokens
        assert capacity.kv_tokens_used == rig.engine.held_tokens("a0")
        await rig.engine.close("a1")
        await rig.engine.open("b0")
        assert await rig.say("b0", 1, range(1)) == said

    async def test_closing_leaves_nothing(self, rig: EngineRig) -> None:
        for key in ("a0", "a1", "a2"):
            await rig.engine.open(key)
        await rig.say("a0", 1, range(2))
        append = await rig.inside("a1", rig.segment(rig.unit(2, 0), 100))
        assert await rig.held_now()
        for key in ("a0", "a1", "a2", "a0", "nobody"):
            await rig.engine.close(key)
        with pytest.raises(SegmentCancelled):
            await append
        assert await rig.still_held() == []
        assert rig.engine.capacity().open_sessions == 0
        with pytest.raises(NotOpen):
            await rig.engine.append("a0", rig.segment(rig.unit(1, 0)))
        with pytest.raises(NotOpen):
            rig.engine.held("a0")

    async def test_a_key_may_come_again(self, rig: EngineRig) -> None:
        first = await rig.alone("a0", 1, 2)
        assert await rig.alone("a0", 1, 2) == first
        await rig.engine.open("a0")
        with pytest.raises(NotOpen):
            await rig.engine.open("a0")

    async def test_cancelling_an_idle_session_changes_nothing(self, rig: EngineRig) -> None:
        await rig.engine.open("a0")
        said = await rig.say("a0", 1, range(1))
        assert not await rig.engine.cancel("a0")
        assert not await rig.engine.cancel("nobody")
        said.append(await rig.goes_on("a0", 1, said, 1))
        assert said == await rig.alone("a1", 1, 2)

    async def test_a_cancel_does_not_touch_the_others(self, rig: EngineRig) -> None:
        expected = await rig.alone("a0", 3, 4)
        await rig.engine.open("a1")
        await rig.engine.open("b1")
        said = await rig.say("b1", 3, range(2))
        append = await rig.inside("a1", rig.segment(rig.unit(1, 0), 100))
        other = asyncio.create_task(rig.goes_on("b1", 3, said, 2))
        await rig.engine.cancel("a1")
        await asyncio.gather(append, return_exceptions=True)
        await rig.go_on()
        said.append(await other)
        said.append(await rig.goes_on("b1", 3, said, 3))
        assert said == expected

    async def test_a_segment_is_timed(self, rig: EngineRig) -> None:
        await rig.engine.open("a0")
        timing = (await rig.engine.append("a0", rig.segment(rig.unit(1, 0)))).timing
        assert timing.generated_tokens == STEPS
        assert len(timing.itls_ms) <= STEPS - 1
        assert min(timing.queued_ms, timing.ttft_ms, *timing.itls_ms) >= 0
