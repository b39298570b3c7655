"""MiniCPM-o's talker in the real engine against the recorded vectors."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest
import torch

from session.errors import StageFailed
from session.ids import RequestId, SessionId
from stages.engine.errors import SegmentFailed
from stages.engine.values import Embeddings, Ids, Pieces, Sampling, Segment
from stages.minicpmo.talker import Talker
from stages.minicpmo.talker_policy import PUBLISHED_TALKER, choose_code
from stages.minicpmo.talker_request import EXTRA_ARG
from tests.stages.minicpmo.reference_talker import COLUMNS, RECORDED, STOP, ReferenceTalker
from tests.support.talker_engine import TalkerEngine

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="session")]

FORCED: Final = [f"forced_{number}" for number in range(7)]
GREEDY: Final = [f"greedy_{number}" for number in range(7)]
FRESH: Final = ["fresh_0"]
ONE_STEP: Final = Sampling(max_tokens=1)


def starts(unit: dict[str, Any]) -> bool:
    return bool(unit["start_position"] == 0)


async def spoken(
    talker: TalkerEngine, key: str, names: Sequence[str], seed: int | None = None
) -> list[tuple[int, ...]]:
    """Speak recorded units in a session of their own."""
    session = SessionId(key)
    await talker.talker.open(session)
    try:
        units = [RECORDED[name] for name in names]
        return [
            (await talker.speak(key, unit, turn_start=starts(unit), seed=seed)).codes
            for unit in units
        ]
    finally:
        await talker.talker.close(session)


async def test_logits_of_the_recorded_conversation(talker: TalkerEngine) -> None:
    await talker.engine.open("taught")
    for name in FORCED:
        unit = RECORDED[name]
        if starts(unit):
            await talker.engine.replace("taught", ())
        assert talker.engine.held_tokens("taught") == unit["start_position"]
        rows = talker.condition.rows(unit["token_ids"].tolist(), unit["hidden"])
        pieces: Pieces = (Embeddings("condition", rows),)
        codes = unit["codes"].tolist()
        for step in range(len(unit["raw_argmax"])):
            segment = Segment(RequestId(f"{name}.{step}"), pieces, ONE_STEP, 0.0)
            await talker.engine.append("taught", segment)
            ((logits,), (best,), (mass,)) = await talker.logits(COLUMNS.tolist())
            np.testing.assert_allclose(logits, unit["raw_logits"][step], atol=1e-4, rtol=0)
            assert best == unit["raw_argmax"][step]
            assert mass == pytest.approx(unit["raw_logsumexp"][step], abs=1e-4)
            if step < len(codes):
                pieces = (Ids((codes[step],)),)
    await talker.engine.close("taught")


@pytest.mark.parametrize("names", [GREEDY, FRESH], ids=["turns", "fresh"])
async def test_likeliest_codes(talker: TalkerEngine, names: list[str]) -> None:
    await talker.talker.open(SessionId("greedy"))
    for name in names:
        unit = RECORDED[name]
        done = await talker.speak("greedy", unit, turn_start=starts(unit))
        assert list(done.codes) == unit["codes"].tolist()
        assert done.first_position == unit["start_position"]
        assert done.timing.generated_tokens == len(unit["choice"])
        kept = unit["start_position"] + len(unit["condition"]) + len(unit["codes"])
        held = talker.engine.held_tokens("greedy")
        assert held == (0 if unit["end_of_turn"] else kept)
    await talker.talker.close(SessionId("greedy"))


async def test_sessions_at_once_are_as_alone(talker: TalkerEngine) -> None:
    talks: list[tuple[str, list[str], int | None]] = [
        ("a", GREEDY, None),
        ("b", FORCED[::-1], 5),
        ("c", FRESH * 5, 6),
        ("d", GREEDY[3:], 7),
    ]
    alone = [await spoken(talker, *talk) for talk in talks]
    together = await asyncio.gather(*(spoken(talker, *talk) for talk in talks))
    assert together == alone
    # The seed is what draws, and a unit of one second is one.
    assert alone[1] != await spoken(talker, "b", FORCED[::-1], 6)
    assert [len(codes) for codes in alone[0]][:3] == [4, 25, 25]
    assert talker.engine.capacity().open_sessions == 0


async def test_a_window_that_is_fed_anew_is_as_one_that_was_held(talker: TalkerEngine) -> None:
    first, second = RECORDED["greedy_0"], RECORDED["greedy_1"]
    session = SessionId("window")
    await talker.talker.open(session)
    await talker.speak("window", first, turn_start=True)
    pieces = talker.engine.held("window")
    await talker.engine.replace("window", pieces)
    codes = (await talker.speak("window", second, turn_start=False)).codes
    assert list(codes) == second["codes"].tolist()
    await talker.talker.close(session)


async def test_a_turn_beyond_its_room_goes_on_from_the_unit_before(talker: TalkerEngine) -> None:
    room = replace(talker.setup, session_tokens=60)
    short = replace(talker, talker=Talker(talker.engine, talker.condition, room))
    await short.talker.open(SessionId("short"))
    first, second, third = (RECORDED[f"greedy_{number}"] for number in range(3))
    for unit in (first, second):
        await short.speak("short", unit, turn_start=starts(unit))
    done = await short.speak("short", third, turn_start=False)
    assert done.first_position == 4 + 25
    assert list(done.codes) == codes_after(second, third)
    assert done.codes != tuple(third["codes"])
    await short.talker.close(SessionId("short"))


def codes_after(before: dict[str, Any], unit: dict[str, Any]) -> list[int]:
    """Return a unit's likeliest codes when the memory is the unit before it alone."""
    reference = ReferenceTalker()
    reference.feed(torch.from_numpy(before["condition"]))
    for code in before["codes"].tolist():
        reference.feed_code(code)
    row, codes = reference.feed(torch.from_numpy(unit["condition"])), list[int]()
    for _ in range(25):
        codes.append(choose_code(row, codes, settings=PUBLISHED_TALKER, masked=STOP, draw=None))
        row = reference.feed_code(codes[-1])
    return codes


async def test_a_condition_that_is_no_number_fails_its_unit_alone(talker: TalkerEngine) -> None:
    unit = RECORDED["fresh_0"]
    sound = asyncio.create_task(spoken(talker, "sound", FRESH))
    await talker.talker.open(SessionId("sick"))
    poisoned = {**unit, "hidden": np.full_like(unit["hidden"], np.nan)}
    with pytest.raises(StageFailed, match="finite"):
        await talker.speak("sick", poisoned, turn_start=True)
    assert await sound == [tuple(unit["codes"].tolist())]
    again = await talker.speak("sick", unit, turn_start=True)
    assert list(again.codes) == unit["codes"].tolist()
    await talker.talker.close(SessionId("sick"))


async def test_a_step_without_codes_fails_its_unit_and_the_turn_goes_on(
    talker: TalkerEngine,
) -> None:
    session = SessionId("sick")
    await talker.talker.open(session)
    await talker.speak("sick", RECORDED["greedy_0"], turn_start=True)
    await talker.engine.call_worker("poison")
    with pytest.raises(StageFailed, match="at step 0"):
        await talker.speak("sick", RECORDED["greedy_1"], turn_start=False)
    for name in ("greedy_1", "greedy_2"):
        unit = RECORDED[name]
        assert (await talker.speak("sick", unit, turn_start=False)).codes == tuple(unit["codes"])
    await talker.talker.close(session)


async def test_an_unreadable_request_is_refused(talker: TalkerEngine) -> None:
    await talker.engine.open("wrong")
    sampling = Sampling(max_tokens=1, extra_args={EXTRA_ARG: {"seed": "soon"}})
    segment = Segment(RequestId("wrong"), (Ids((1,)),), sampling, 0.0)
    with pytest.raises(SegmentFailed):
        await talker.engine.append("wrong", segment)
    await talker.engine.close("wrong")
    assert await spoken(talker, "after", FRESH) == [tuple(RECORDED["fresh_0"]["codes"].tolist())]
