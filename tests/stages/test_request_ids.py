"""The names under which a model works: one an attempt, and answers under another are none."""

import pytest

from session.config import RuntimeConfig
from session.errors import StageContractBroken, StageFailed
from session.fence import Fence
from session.ids import OperationId, SessionId
from session.unit import Unit
from stages.binding import Stage0Door
from tests.support.models import HandStage0

SILENCE = Unit(pcm=bytes(32_000))
FENCE = Fence(SessionId("sess_a"), incarnation=0, epoch=0, turn=0)


async def opened(model: HandStage0, fence: Fence = FENCE) -> Stage0Door:
    door = Stage0Door(model, cache_size=8)
    await door.open(fence, RuntimeConfig())
    return door


async def append(door: Stage0Door, fence: Fence, seq: int, operation: str) -> None:
    await door.append(
        fence,
        seq=seq,
        operation_id=OperationId(operation),
        unit=SILENCE,
        config_generation=0,
    )


async def test_every_attempt_in_every_life_has_a_name_of_its_own() -> None:
    model = HandStage0()
    door = await opened(model)
    model.fail_next("work", StageFailed("once"))
    with pytest.raises(StageFailed):
        await append(door, FENCE, 1, "op_1")
    await append(door, FENCE, 1, "op_1")
    await append(door, FENCE, 2, "op_2")
    later = FENCE.next_epoch()
    await door.cancel(FENCE, later, "")
    await append(door, later, 1, "op_3")
    await door.close(later)
    second_life = Fence(SessionId("sess_a"), incarnation=1, epoch=0, turn=0)
    await door.open(second_life, RuntimeConfig())
    await append(door, second_life, 1, "op_4")
    assert model.requests == [
        "sess_a/0.0.0/1.1",
        "sess_a/0.0.0/1.2",
        "sess_a/0.0.0/2.3",
        "sess_a/0.1.1/1.1",
        "sess_a/1.0.0/1.1",
    ]


async def test_a_repeated_operation_asks_for_nothing() -> None:
    model = HandStage0()
    door = await opened(model)
    await append(door, FENCE, 1, "op_1")
    await append(door, FENCE, 1, "op_1")
    assert len(model.requests) == 1


async def test_an_answer_to_another_request_is_none() -> None:
    model = HandStage0()
    model.echoes = False
    door = await opened(model)
    with pytest.raises(StageContractBroken, match="asked for sess_a/"):
        await append(door, FENCE, 1, "op_1")
