"""Where a stage's time for a unit went, as its door measures it."""

import asyncio

import pytest

from session.config import RuntimeConfig
from session.fence import Fence
from session.ids import OperationId, SessionId
from session.unit import SegmentMetrics, SpeechMetrics, StageTime, Unit
from stages.binding import Stage0Door, Stage1Door
from stages.contract import Speech
from stages.stage_time import InModel, Stopwatch
from tests.fakes.clock import FakeClock
from tests.support.models import HandStage0, HandStage1

FENCE = Fence(SessionId("sess_a"), 0, 0, 0)


def test_what_waits_at_the_door_and_in_the_model_is_queue() -> None:
    inside = InModel(Stopwatch(lambda: 12.0, came_s=10.0), entered_s=10.5)
    assert inside.until_now(None) == StageTime(0.5, 1.5)
    told = SegmentMetrics(1.0, 1.0, (), 1, queued_ms=400.0)
    parts = inside.until_now(told)
    assert (parts.queue_s, parts.compute_s) == pytest.approx((0.9, 1.1))
    spoken = SpeechMetrics(1.0, 1.0, 1.0, waited_ms=9_000.0, batch=1)
    assert inside.until_now(spoken) == StageTime(2.0, 0.0)  # never more than there was


async def test_a_unit_says_how_long_it_was_in_the_model() -> None:
    model, clock = HandStage0(), FakeClock()
    door = Stage0Door(model, cache_size=3, now=clock.now)
    await door.open(FENCE, RuntimeConfig())
    gate = model.gates["work"]
    gate.hold()
    append = asyncio.create_task(
        door.append(
            FENCE, seq=1, operation_id=OperationId("op"), unit=Unit(bytes(320)), config_generation=0
        )
    )
    await gate.reached.wait()
    clock.advance(0.25)
    gate.release()
    appended = await append
    assert appended.result.time == StageTime(0.0, 0.25)


async def test_the_first_chunk_alone_says_it() -> None:
    door = Stage1Door(HandStage1(), now=FakeClock().now)
    await door.open(FENCE, RuntimeConfig())
    speech = Speech("one two", segment_end=True, turn_end=True)
    times = [chunk.time async for chunk in door.speak(FENCE, seq=1, speech=speech)]
    assert times == [StageTime(0.0, 0.0), None]
