"""The door in front of a model: what only Stage1's half does."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from session.config import RuntimeConfig
from session.errors import StageFailed, StageRefused
from session.fence import Fence
from session.ids import SessionId
from session.unit import SpeechChunk
from stages.binding import Stage1Door
from stages.contract import Released, Speech
from tests.support.models import HandStage1, settle

RUNTIME = RuntimeConfig()
FENCE = Fence(SessionId("sess_a"), 0, 0, 0)
WORDS = Speech("one two three", segment_end=True, turn_end=True)


@pytest.fixture
def model() -> HandStage1:
    return HandStage1()


@pytest.fixture
async def door(model: HandStage1) -> Stage1Door:
    door = Stage1Door(model)
    await door.open(FENCE, RUNTIME)
    return door


async def collect(stream: AsyncIterator[SpeechChunk]) -> list[SpeechChunk]:
    return [chunk async for chunk in stream]


async def test_the_chunks_of_a_unit_come_in_order(door: Stage1Door) -> None:
    chunks = await collect(door.speak(FENCE, seq=1, speech=WORDS))
    assert [chunk.transcript for chunk in chunks] == ["one ", "two ", "three"]
    assert chunks[-1].turn_end


async def test_numbers_rise_within_an_epoch_and_may_skip(door: Stage1Door) -> None:
    await collect(door.speak(FENCE, seq=2, speech=WORDS))
    await collect(door.speak(FENCE, seq=5, speech=WORDS))
    for seq in (4, 5):
        with pytest.raises(StageRefused, match="out of order"):
            await collect(door.speak(FENCE, seq=seq, speech=WORDS))


async def test_a_new_epoch_counts_anew(door: Stage1Door) -> None:
    await collect(door.speak(FENCE, seq=5, speech=WORDS))
    later = FENCE.next_epoch()
    await door.cancel(FENCE, later, "")
    assert len(await collect(door.speak(later, seq=1, speech=WORDS))) == 3


async def test_a_stale_fence_is_refused(door: Stage1Door) -> None:
    await door.cancel(FENCE, FENCE.next_epoch(), "")
    with pytest.raises(StageRefused, match="stale"):
        await collect(door.speak(FENCE, seq=1, speech=WORDS))


async def test_two_speeches_of_a_session_never_mix(door: Stage1Door, model: HandStage1) -> None:
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(collect(door.speak(FENCE, seq=1, speech=WORDS)))
        second = tasks.create_task(collect(door.speak(FENCE, seq=2, speech=WORDS)))
    assert len(first.result()) == len(second.result()) == 3
    assert model.most_inside == 1


async def test_a_cancel_ends_the_stream_early_and_without_error(
    door: Stage1Door, model: HandStage1
) -> None:
    gate = model.gates["work"]
    gate.hold()
    speaking = asyncio.ensure_future(collect(door.speak(FENCE, seq=1, speech=WORDS)))
    await gate.reached.wait()
    gate.let(1)
    await gate.reached.wait()
    await settle()
    assert await door.cancel(FENCE, FENCE.next_epoch(), "one") == Released(calls=1)
    assert [chunk.transcript for chunk in await speaking] == ["one "]
    assert model.stopped == ["sess_a"]
    assert model.inside == 0


async def test_what_was_made_and_not_taken_is_dropped_by_a_cancel(door: Stage1Door) -> None:
    stream = door.speak(FENCE, seq=1, speech=WORDS)
    await anext(stream)
    await settle()  # the model, which waits for nothing, has made all of it
    await door.cancel(FENCE, FENCE.next_epoch(), "")
    assert await collect(stream) == []


async def test_a_cancel_also_ends_speech_that_still_waits_its_turn(
    door: Stage1Door, model: HandStage1
) -> None:
    gate = model.gates["work"]
    gate.hold()
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(collect(door.speak(FENCE, seq=1, speech=WORDS)))
        await gate.reached.wait()
        second = tasks.create_task(collect(door.speak(FENCE, seq=2, speech=WORDS)))
        await settle()
        assert await door.cancel(FENCE, FENCE.next_epoch(), "") == Released(calls=2)
    assert first.result() == second.result() == []
    assert model.calls["work"] == 1


async def test_a_consumer_that_leaves_stops_the_model(door: Stage1Door, model: HandStage1) -> None:
    stream = door.speak(FENCE, seq=1, speech=WORDS)
    gate = model.gates["work"]
    gate.hold()
    first = asyncio.ensure_future(anext(stream))
    await gate.reached.wait()
    first.cancel()
    await asyncio.wait({first})
    await stream.aclose()
    await settle()
    assert model.inside == 0
    gate.release()
    assert len(await collect(door.speak(FENCE, seq=2, speech=WORDS))) == 3
    assert model.most_inside == 1


async def test_a_consumer_that_only_stalls_holds_up_nobody(door: Stage1Door) -> None:
    stalled = door.speak(FENCE, seq=1, speech=WORDS)
    await anext(stalled)
    assert len(await collect(door.speak(FENCE, seq=2, speech=WORDS))) == 3
    await stalled.aclose()


async def test_a_fault_in_the_middle_comes_after_the_chunks_before_it(
    door: Stage1Door, model: HandStage1
) -> None:
    gate = model.gates["work"]
    gate.hold()
    stream = door.speak(FENCE, seq=1, speech=WORDS)
    first = asyncio.ensure_future(anext(stream))
    await gate.reached.wait()
    gate.let(1)
    assert (await first).transcript == "one "
    model.fail_next("work", RuntimeError("vocoder"))
    gate.release()
    with pytest.raises(StageFailed, match="RuntimeError: vocoder"):
        await anext(stream)
    assert len(await collect(door.speak(FENCE, seq=2, speech=WORDS))) == 3


async def test_settings_wait_for_the_end_of_a_speech(door: Stage1Door, model: HandStage1) -> None:
    gate = model.gates["work"]
    gate.hold()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(collect(door.speak(FENCE, seq=1, speech=WORDS)))
        await gate.reached.wait()
        tasks.create_task(door.configure(FENCE, RuntimeConfig(voice="b"), 1))
        await settle()
        assert model.calls["configure"] == 0
        gate.release()
    assert model.settings[FENCE.session_id].voice == "b"
    assert model.most_inside == 1


async def test_a_close_ends_the_stream_and_releases(door: Stage1Door, model: HandStage1) -> None:
    gate = model.gates["work"]
    gate.hold()
    speaking = asyncio.ensure_future(collect(door.speak(FENCE, seq=1, speech=WORDS)))
    await gate.reached.wait()
    assert await door.close(FENCE) == Released(sessions=1, calls=1)
    assert await speaking == []
    assert model.open_sessions == set()
    assert await door.close(FENCE) == Released()


async def test_a_session_that_is_being_released_is_not_held_any_more(
    door: Stage1Door, model: HandStage1
) -> None:
    assert door.holds(FENCE)
    gate = model.gates["close"]
    gate.hold()
    closing = asyncio.ensure_future(door.close(FENCE))
    await gate.reached.wait()
    assert not door.holds(FENCE)
    assert door.fence_of(FENCE.session_id) == FENCE, "what is not released yet can be tried again"
    gate.release()
    await closing
