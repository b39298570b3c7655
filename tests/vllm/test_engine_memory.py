"""What the engine's memory holds after trouble, to the last hidden row, on vLLM itself."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import pytest
import pytest_asyncio
import torch

from stages.engine.errors import SegmentCancelled, SegmentFailed
from stages.engine.values import Embeddings, Ids, Pieces, Tokens
from tests.support.engine_contract import ROWS
from tests.support.vllm_rig import FIRST_ID, HIDDEN, Rows, VllmRig, furthest

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="session")]

SAME = 1e-5
OTHER = 1e-2
"""Rows of another sound differ by more than this."""
UNITS = 12


@pytest_asyncio.fixture(loop_scope="session")
async def rig(vllm_rig: VllmRig) -> AsyncIterator[VllmRig]:
    yield vllm_rig
    await vllm_rig.close_all()
    assert await vllm_rig.still_held() == []


Trouble = Callable[[VllmRig, str], Awaitable[None]]
NO_TROUBLE: Mapping[int, Trouble] = {}


async def cancelled(rig: VllmRig, key: str) -> None:
    append = await rig.inside(key, rig.segment(rig.unit(77, 7), 200))
    assert await rig.engine.cancel(key)
    with pytest.raises(SegmentCancelled):
        await append


async def refused(rig: VllmRig, key: str) -> None:
    with pytest.raises(SegmentFailed):
        await rig.engine.append(key, await rig.unheard(rig.unit(77, 7)))


async def cancelled_and_prepared(rig: VllmRig, key: str) -> None:
    await cancelled(rig, key)
    await rig.engine.prepare(key)


async def session(
    rig: VllmRig, key: str, voice: int, trouble: Mapping[int, Trouble] = NO_TROUBLE
) -> tuple[list[Tokens], str]:
    """Speak for some units, with trouble before some; return the tokens and the last request."""
    await rig.engine.open(key)
    said: list[Tokens] = []
    for number in range(UNITS):
        if number in trouble:
            await trouble[number](rig, key)
        unit = rig.unit(voice, number, said[-1][-1:] if said else ())
        said.append((await rig.engine.append(key, rig.segment(unit))).token_ids)
    return said, [name for name in rig.backend.names if name.startswith(f"{key}.")][-1]


async def test_trouble_changes_no_token_and_no_row(rig: VllmRig) -> None:
    smooth, smooth_name = await session(rig, "a0", 1)
    expected = await rig.rows(smooth_name)
    assert len(set(smooth)) > UNITS // 2
    trouble = {2: refused, 4: cancelled, 7: cancelled_and_prepared, 8: cancelled, 9: refused}
    rough, rough_name = await session(rig, "a1", 1, trouble)
    assert rough_name != smooth_name
    assert rough == smooth
    assert furthest(await rig.rows(rough_name), expected) < SAME
    assert set(expected) == set(range(rig.engine.held_tokens("a0")))


async def test_another_sound_gives_other_rows(rig: VllmRig) -> None:
    await rig.engine.open("a0")
    await rig.engine.open("a1")
    names: list[str] = []
    for key, voice in (("a0", 1), ("a1", 2)):
        await rig.engine.append(key, rig.segment(rig.unit(voice, 0), 1))
        names.append(rig.backend.names[-1])
    one, other = [await rig.rows(name) for name in names]
    assert furthest(one, other) > OTHER


async def test_neighbours_do_not_feel_trouble(rig: VllmRig) -> None:
    alone: list[tuple[list[Tokens], Rows]] = []
    for voice in range(4):
        said, name = await session(rig, f"a{voice}", voice)
        alone.append((said, await rig.rows(name)))
    await rig.close_all()
    trouble = {2: refused, 4: cancelled, 6: cancelled_and_prepared, 9: cancelled}
    together = await asyncio.gather(
        *(session(rig, f"b{voice}", voice) for voice in range(4)),
        session(rig, "b9", 9, trouble),
    )
    for (said, name), (expected, rows) in zip(together, alone, strict=False):
        assert said == expected
        assert furthest(await rig.rows(name), rows) < SAME


async def test_fifty_units_have_the_rows_of_one_long_prompt(rig: VllmRig) -> None:
    await rig.engine.open("a0")
    await rig.say("a0", 1, range(50))
    in_units = await rig.rows(rig.backend.names[-1])
    held = rig.engine.held("a0")
    await rig.engine.open("a1")
    await rig.engine.append("a1", rig.segment(held, 1))
    at_once = await rig.rows(rig.backend.names[-1])
    assert len(at_once) == 50 * (ROWS + 1 + 4) - 1
    assert furthest(in_units, at_once) < SAME


def some_rows(count: int) -> torch.Tensor:
    return torch.randn(count, HIDDEN, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param(
            (
                Ids((FIRST_ID, FIRST_ID + 1)),
                Embeddings("image", some_rows(90)[:30].contiguous()),
                Embeddings("audio", some_rows(90)[30:40].contiguous()),
                Embeddings("image", some_rows(90)[40:].contiguous()),
                Ids((FIRST_ID + 2,)),
            ),
            id="several-modalities",
        ),
        pytest.param(
            (
                Ids((FIRST_ID, FIRST_ID + 1)),
                Embeddings("audio", some_rows(90)),
                Ids((FIRST_ID + 2,)),
            ),
            id="longer-than-an-item",
        ),
    ],
)
async def test_rows_go_where_they_belong(rig: VllmRig, pieces: Pieces) -> None:
    await rig.engine.open("a0")
    await rig.engine.append("a0", rig.segment(pieces, 1))
    got = await rig.rows(rig.backend.names[-1])
    # The same rows, one segment each, so that none can be mistaken for another.
    await rig.engine.open("a1")
    await rig.engine.append("a1", rig.segment((Ids((FIRST_ID, FIRST_ID + 1)),), 1))
    for row in some_rows(90):
        one = Embeddings("audio", row[None].contiguous())
        await rig.engine.append("a1", rig.segment((one,), 1))
    await rig.engine.append("a1", rig.segment((Ids((FIRST_ID + 2,)),), 1))
    assert furthest(got, await rig.rows(rig.backend.names[-1])) < SAME


async def test_a_replaced_memory_is_exactly_that(rig: VllmRig) -> None:
    await session(rig, "a0", 1)
    window = (Ids((FIRST_ID,)), *rig.engine.held("a0")[-5:])
    await rig.engine.replace("a0", window)
    await rig.engine.prepare("a0")
    replaced = await rig.rows(rig.backend.names[-1])
    await rig.engine.open("a1")
    await rig.engine.append("a1", rig.segment(window, 1))
    assert furthest(replaced, await rig.rows(rig.backend.names[-1])) < SAME
