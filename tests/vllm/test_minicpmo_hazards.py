"""What one MiniCPM-o session does wrong hurts no other, and nothing of it stays in the worker."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
import torch

from session.errors import StageFailed
from session.ids import RequestId
from stages.engine.values import Embeddings, Ids, Pieces, Sampling, Segment
from stages.minicpmo.policy import PUBLISHED
from stages.minicpmo.policy_request import PolicyRequest
from stages.minicpmo.unit_decoder import NOTHING_SAID, PUBLISHED_RULES, SpeechState
from stages.minicpmo.unit_record import UnitRecord
from tests.stages.minicpmo.vectors import FOLDER, TOKENS, ids_of, load
from tests.support.minicpmo_engine import TABLES, MiniCPMOEngine

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="session")]

SOUND = torch.from_numpy(np.load(FOLDER / "audio_encoder.npz")["embeddings"])
CONTEXT = ids_of(load("context.json")["no_ref_audio"]["context"])
RULES = replace(PUBLISHED_RULES, listens_at_first=0)
DRAWN = PolicyRequest("", 5, False, NOTHING_SAID, PUBLISHED, RULES)


def unit_pieces(unit: int, opening: tuple[int, ...]) -> Pieces:
    return (Ids((*opening, TOKENS.unit)), Embeddings("audio", SOUND[unit]))


async def conversation(
    minicpmo: MiniCPMOEngine, key: str, units: int = 6, first: int = 3
) -> list[UnitRecord]:
    """Run a conversation with drawn tokens; the draws depend on the unit alone."""
    await minicpmo.engine.open(key)
    records: list[UnitRecord] = []
    speech, opening = NOTHING_SAID, CONTEXT
    for unit in range(first, first + units):
        request = replace(DRAWN, request_id=f"{key}.{unit}", seed=unit, speech=speech)
        _, record = await minicpmo.unit(key, unit_pieces(unit, opening), request)
        speech, opening = record.ended.speech, (record.ended.terminator, TOKENS.unit_end)
        records.append(record)
    await minicpmo.engine.close(key)
    await minicpmo.engine.call_worker("tap_forget", [f"{key}.{first + units - 1}"])
    return records


def assert_same(one: list[UnitRecord], other: list[UnitRecord]) -> None:
    assert [record.ended for record in one] == [record.ended for record in other]
    for mine, yours in zip(one, other, strict=True):
        np.testing.assert_allclose(mine.rows, yours.rows, atol=1e-5, rtol=0)


async def poisoned(minicpmo: MiniCPMOEngine) -> None:
    """Feed rows that are no numbers, again and again."""
    for number in range(4):
        key = f"poisoned.{number}"
        await minicpmo.engine.open(key)
        rows = torch.full((10, 128), torch.nan)
        pieces = (Ids((*CONTEXT, TOKENS.unit)), Embeddings("audio", rows))
        with pytest.raises(StageFailed):
            await minicpmo.unit(key, pieces, replace(DRAWN, request_id=key))
        await minicpmo.engine.close(key)
        await minicpmo.engine.call_worker("tap_forget", [key])


async def cancelled(minicpmo: MiniCPMOEngine) -> None:
    """Give units up that have just begun."""
    for number in range(4):
        key = f"cancelled.{number}"
        await minicpmo.engine.open(key)
        request = replace(DRAWN, request_id=key)
        unit = asyncio.ensure_future(minicpmo.unit(key, unit_pieces(4, CONTEXT), request))
        await asyncio.sleep(0.02)
        unit.cancel()
        await asyncio.wait({unit})
        await minicpmo.engine.close(key)
        await minicpmo.engine.call_worker("tap_forget", [key])


async def test_sessions_beside_each_other_are_as_they_are_alone(minicpmo: MiniCPMOEngine) -> None:
    alone = await conversation(minicpmo, "alone")
    assert any(record.ended.fed for record in alone)
    together = await asyncio.gather(
        conversation(minicpmo, "first"),
        conversation(minicpmo, "second"),
        conversation(minicpmo, "third", first=9),
        poisoned(minicpmo),
        cancelled(minicpmo),
    )
    assert_same(alone, together[0])
    assert_same(alone, together[1])
    sizes = await minicpmo.sizes()
    assert [sizes[table] for table in TABLES] == [0, 0, 0]
    assert (sizes["errors"], sizes["dropped"]) == (0, 0)


async def test_an_input_that_takes_several_steps_is_looked_at_once(
    minicpmo: MiniCPMOEngine,
) -> None:
    rows = Embeddings("audio", SOUND.flatten(0, 1)[:150].contiguous())
    whole: Pieces = (
        Ids(CONTEXT[:-1]),
        rows,
        Ids((CONTEXT[-1], TOKENS.unit)),
        Embeddings("audio", SOUND[20]),
    )
    request = replace(DRAWN, request_id="long", seed=None)
    await minicpmo.engine.open("long")
    _, at_once = await minicpmo.unit("long", whole, request)
    assert len(at_once.decisions) >= len(at_once.ended.fed)
    await minicpmo.engine.close("long")
    await minicpmo.engine.open("short")
    begun = replace(request, rules=replace(RULES, max_steps=1))
    for number, piece in enumerate(whole[:-1]):
        await minicpmo.unit("short", (piece,), replace(begun, request_id=f"short.{number}"))
    _, in_parts = await minicpmo.unit("short", whole[-1:], replace(request, request_id="short"))
    await minicpmo.engine.close("short")
    assert_same([at_once], [in_parts])
    await minicpmo.engine.call_worker("tap_forget", ["long", "short"])


async def test_a_request_without_a_policy_is_the_models_own(minicpmo: MiniCPMOEngine) -> None:
    await minicpmo.engine.open("plain")
    llm = np.load(FOLDER / "llm.npz")
    segment = Segment(RequestId("plain"), unit_pieces(0, CONTEXT), Sampling(max_tokens=1), 0.0)
    done = await minicpmo.engine.append("plain", segment)
    assert done.token_ids == (llm["argmax_id"][0],)
    await minicpmo.engine.close("plain")


async def test_a_policy_request_that_can_not_be_read_ends_its_segment_alone(
    minicpmo: MiniCPMOEngine,
) -> None:
    await minicpmo.engine.open("wrong")
    extra = replace(DRAWN, speech=SpeechState(0, False, ())).to_extra_args()
    extra["minicpmo"]["rules"]["max_steps"] = 0
    sampling = Sampling(max_tokens=1, extra_args=extra)
    segment = Segment(RequestId("wrong"), unit_pieces(0, CONTEXT), sampling, 0.0)
    with pytest.raises(StageFailed):
        await minicpmo.engine.append("wrong", segment)
    await minicpmo.engine.close("wrong")
    assert await conversation(minicpmo, "after", units=1)
