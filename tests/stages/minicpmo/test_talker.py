"""The talker's turns on an engine of arithmetic: what its memory holds, and what ends a turn."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from session.errors import StageFailed, StageRefused
from session.ids import RequestId, SessionId
from stages.contract import Speech
from stages.engine.engine import ResumableEngine
from stages.engine.errors import NotOpen, SegmentCancelled
from stages.engine.settings import EngineSettings
from stages.engine.values import Embeddings, Ids
from stages.minicpmo.config import read_config
from stages.minicpmo.talker import Talker, TalkerSetup, UnitCodes
from stages.minicpmo.talker_condition import TalkerCondition, TalkerUnsupported
from stages.minicpmo.talker_policy import PUBLISHED_TALKER
from stages.minicpmo.talker_unit import SERVING_RULES, Codes, TalkerRules
from stages.minicpmo.tiny_checkpoint import DATA
from tests.fakes.engine_backend import HIDDEN, VOCAB, FakeBackend

pytestmark = pytest.mark.models

STOP = VOCAB - 2
BROKEN = VOCAB - 1
LLM = 4
ONE = SessionId("one")
RULES = TalkerRules(max_steps=4, last_max_steps=8, steps_without_stop=0)
SETUP = TalkerSetup(RULES, PUBLISHED_TALKER, STOP, session_tokens=40, recomputes=False)
CODES = [1, 2, 3, 4]
"""What a unit samples; the last is thrown away."""


@dataclass(slots=True)
class Rig:
    engine: ResumableEngine
    backend: FakeBackend
    talker: Talker
    asked: int = 0

    async def speak(
        self, tokens: int, *codes: int, session: SessionId = ONE, **flags: bool
    ) -> UnitCodes:
        """Speak a unit of so many tokens; the engine samples `codes`."""
        self.backend.script += codes
        self.asked += 1
        return await self.talker.speak(
            session,
            speech(tokens, **flags),
            request_id=RequestId(f"unit.{self.asked}"),
            seed=None,
            deadline_s=0.0,
        )

    def held(self, session: SessionId = ONE) -> list[object]:
        """Return what is in memory: how many rows, or which codes."""
        return [
            list(piece.ids) if isinstance(piece, Ids) else len(piece)
            for piece in self.engine.held(session)
        ]


def speech(tokens: int, **flags: bool) -> Speech:
    hidden = np.ones((tokens, LLM), np.float32)
    said = Speech(
        "", segment_end=False, turn_end=False, token_ids=tuple(range(tokens)), hidden=hidden
    )
    named: dict[str, Any] = dict(flags)
    return replace(said, **named)


def condition() -> TalkerCondition:
    source = torch.Generator().manual_seed(1)
    shapes = ((HIDDEN, LLM), (HIDDEN,), (HIDDEN, HIDDEN), (HIDDEN,))
    projector = [torch.randn(*shape, generator=source) for shape in shapes]
    return TalkerCondition(torch.randn(30, HIDDEN, generator=source), projector, audio_bos=29)


async def started(setup: TalkerSetup) -> Rig:
    backend = FakeBackend(max_model_len=setup.session_tokens)
    settings = EngineSettings(
        model=Path("model"),
        tokenizer=Path("model"),
        dtype="float32",
        max_model_len=setup.session_tokens,
        session_tokens=setup.session_tokens,
        max_sessions=3,
        max_in_flight=3,
        max_num_seqs=4,
        max_num_batched_tokens=512,
        placeholder_ids={"condition": 0},
    )
    engine = ResumableEngine(settings, backend, lambda: backend.now_s)
    await engine.start()
    rig = Rig(engine, backend, Talker(engine, condition(), setup))
    await rig.talker.open(ONE)
    return rig


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = await started(SETUP)
    yield made
    await made.talker.close(ONE)
    await made.engine.stop()
    assert made.backend.requests == {}


async def test_memory_is_conditions_and_spoken_codes(rig: Rig) -> None:
    first = await rig.speak(2, *CODES, turn_start=True)
    assert (first.codes, first.first_position) == ((1, 2, 3), 0)
    second = await rig.speak(1, 7, 8, 9, 10, segment_end=True)
    assert (second.codes, second.first_position) == ((7, 8, 9), 6)
    assert rig.held() == [3, [1, 2, 3], 2, [7, 8, 9]]
    assert rig.backend.fed == [3, 2]
    assert len(rig.backend.names) == 1
    assert first.timing.generated_tokens == 4


async def test_a_stop_code_is_not_remembered(rig: Rig) -> None:
    unit = await rig.speak(0, 5, STOP, turn_start=True)
    assert unit.codes == (5,)
    assert rig.held() == [1, [5]]
    silent = await rig.speak(0, STOP)
    assert silent.codes == ()
    assert rig.held() == [1, [5], 1]


async def test_the_end_of_a_turn_has_its_own_budget_and_empties_the_memory(rig: Rig) -> None:
    await rig.speak(2, *CODES, turn_start=True)
    last = await rig.speak(1, *range(10, 18), turn_end=True)
    assert last.codes == tuple(range(10, 17))
    assert rig.held() == []
    assert rig.backend.requests == {}
    # The next unit is a first one, whether it says so or not.
    again = await rig.speak(1, 5, STOP)
    assert (again.codes, again.first_position) == ((5,), 0)


async def test_a_turn_that_starts_forgets_the_one_before(rig: Rig) -> None:
    await rig.speak(2, *CODES, turn_start=True)
    await rig.speak(1, 5, STOP, turn_start=True)
    assert rig.held() == [2, [5]]


async def test_a_cut_turn_is_forgotten(rig: Rig) -> None:
    await rig.speak(2, *CODES, turn_start=True)
    await rig.talker.cut(ONE)
    assert rig.backend.requests == {}
    assert (await rig.speak(1, *CODES)).first_position == 0


async def test_a_cut_ends_the_unit_that_is_spoken(rig: Rig) -> None:
    await rig.speak(2, *CODES, turn_start=True)
    rig.backend.hold()
    unit = asyncio.create_task(rig.speak(1, *CODES))
    await rig.backend.reached.wait()
    cut = asyncio.create_task(rig.talker.cut(ONE))
    with pytest.raises(SegmentCancelled):
        await unit
    await cut
    rig.backend.go_on()
    rig.backend.script.clear()
    assert rig.held() == []
    assert (await rig.speak(1, *CODES)).first_position == 0


async def test_a_cut_before_the_unit_reached_the_engine_ends_it(rig: Rig) -> None:
    unit = asyncio.create_task(rig.speak(1, *CODES))
    await asyncio.sleep(0)
    await rig.talker.cut(ONE)
    with pytest.raises(StageRefused):
        await unit
    assert rig.held() == []


async def test_a_unit_without_a_possible_code_fails_and_leaves_the_memory(rig: Rig) -> None:
    await rig.speak(2, *CODES, turn_start=True)
    with pytest.raises(StageFailed, match="at step 1"):
        await rig.speak(1, 5, BROKEN)
    assert rig.held() == [3, [1, 2, 3]]
    assert (await rig.speak(1, *CODES)).first_position == 6
    assert rig.held() == [3, [1, 2, 3], 2, [1, 2, 3]]


async def test_a_condition_that_does_not_fit_fails_and_leaves_the_memory(rig: Rig) -> None:
    await rig.speak(2, *CODES, turn_start=True)
    wrong = replace(speech(2), hidden=np.ones((1, LLM), np.float32))
    with pytest.raises(StageFailed, match="hidden rows"):
        await rig.talker.speak(ONE, wrong, request_id=RequestId("r"), seed=1, deadline_s=0.0)
    assert rig.held() == [3, [1, 2, 3]]


async def test_a_full_memory_becomes_the_unit_before(rig: Rig) -> None:
    await rig.speak(5, *CODES, turn_start=True)
    await rig.speak(6, 7, 8, 9, 10)
    await rig.speak(7, 11, 12, 13, 14)
    assert rig.held() == [6, [1, 2, 3], 7, [7, 8, 9], 8, [11, 12, 13]]
    unit = await rig.speak(8, 15, 16, 17, 18)
    assert rig.held() == [8, [11, 12, 13], 9, [15, 16, 17]]
    assert unit.first_position == 11
    assert rig.backend.fed[-1] == 20
    # Without room for that either, the unit goes alone; more than the memory itself fails.
    await rig.speak(25, *CODES)
    assert rig.held() == [26, [1, 2, 3]]
    with pytest.raises(StageFailed):
        await rig.speak(29 + 8, *CODES)


async def test_a_checkpoint_that_recomputes_has_one_unit_in_memory() -> None:
    rig = await started(replace(SETUP, recomputes=True))
    await rig.speak(2, *CODES, turn_start=True)
    await rig.speak(1, 7, 8, 9, 10)
    assert rig.backend.fed == [3, 2]
    await rig.speak(0, 11, 12, 13, 14)
    assert rig.held() == [2, [7, 8, 9], 1, [11, 12, 13]]
    assert rig.backend.fed == [3, 2, 6]
    await rig.engine.stop()


async def test_sessions_do_not_share_turns(rig: Rig) -> None:
    two = SessionId("two")
    await rig.talker.open(two)
    await rig.speak(2, *CODES, turn_start=True)
    await rig.speak(1, 7, 8, 9, 10, session=two, turn_start=True)
    await rig.talker.cut(two)
    assert rig.held() == [3, [1, 2, 3]]
    await rig.talker.close(two)
    await rig.talker.close(two)
    with pytest.raises(NotOpen):
        await rig.speak(1, session=two)
    with pytest.raises(NotOpen):
        await rig.talker.cut(two)
    assert rig.talker.capacity().open_sessions == 1


async def test_rows_are_those_of_the_condition(rig: Rig) -> None:
    await rig.speak(2, *CODES, turn_start=True)
    rows = rig.engine.held(ONE)[0]
    assert isinstance(rows, Embeddings)
    assert torch.equal(rows.rows, condition().rows([0, 1], np.ones((2, LLM), np.float32)))


def test_the_set_up_follows_the_checkpoint() -> None:
    tts = read_config(DATA).tts
    made = TalkerSetup.of(tts, SERVING_RULES, PUBLISHED_TALKER, session_tokens=9000)
    assert (made.stop, made.session_tokens, made.recomputes) == (6561, 4096, False)
    sliding = replace(tts, attention_type="sliding_recompute")
    made = TalkerSetup.of(sliding, SERVING_RULES, PUBLISHED_TALKER, session_tokens=512)
    assert (made.session_tokens, made.recomputes) == (512, True)
    wrong: dict[str, Any] = {"num_vq": 4}
    with pytest.raises(TalkerUnsupported):
        TalkerSetup.of(replace(tts, **wrong), SERVING_RULES, PUBLISHED_TALKER, session_tokens=512)


@pytest.mark.parametrize(
    ("sampled", "heard"),
    [
        (CODES, [(1,), (1, 2), (1, 2, 3)]),
        ((5, STOP), [(5,)]),
        ((5, 6, BROKEN), [(5,), (5, 6)]),
    ],
)
async def test_codes_are_told_as_they_come(
    rig: Rig, sampled: Sequence[int], heard: list[Codes]
) -> None:
    told: list[Codes] = []
    rig.backend.script += sampled
    with suppress(StageFailed):
        unit = await rig.talker.speak(
            ONE,
            speech(1, turn_start=True),
            request_id=RequestId("r"),
            seed=None,
            deadline_s=0.0,
            on_codes=told.append,
        )
        assert unit.codes[: len(told[-1])] == told[-1]
    assert told == heard
