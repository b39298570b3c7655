"""The engine's contract on a backend of arithmetic."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stages.engine.engine import ResumableEngine
from stages.engine.settings import EngineSettings
from stages.engine.values import Pieces, Segment, SegmentDone
from tests.fakes.engine_backend import HIDDEN, VOCAB, FakeBackend
from tests.support.engine_contract import EngineContract, EngineRig

pytestmark = pytest.mark.models  # its rows are torch's

POSITIONS = 1024


@dataclass(slots=True, kw_only=True)
class FakeRig(EngineRig):
    backend: FakeBackend

    async def unheard(self, pieces: Pieces) -> Segment:
        self.backend.refuse_next = "no"
        return self.segment(pieces)

    async def inside(self, key: str, segment: Segment) -> "asyncio.Task[SegmentDone]":
        self.backend.hold()
        append = asyncio.create_task(self.engine.append(key, segment))
        await self.backend.reached.wait()
        asyncio.get_running_loop().call_later(0.05, self.backend.go_on)
        return append

    async def go_on(self) -> None:
        self.backend.go_on()

    async def held_now(self) -> list[str]:
        return list(self.backend.requests)


class TestContractOnTheFake(EngineContract):
    @pytest.fixture
    async def rig(self) -> AsyncIterator[FakeRig]:
        backend = FakeBackend(max_model_len=POSITIONS, kv_blocks=10 * POSITIONS // 8)
        engine = ResumableEngine(
            EngineSettings(
                model=Path("model"),
                tokenizer=Path("model"),
                dtype="float32",
                max_model_len=POSITIONS,
                session_tokens=POSITIONS,
                max_sessions=9,
                max_in_flight=4,
                max_num_seqs=10,
                max_num_batched_tokens=512,
                placeholder_ids={"audio": 0},
            ),
            backend,
            lambda: backend.now_s,
        )
        await engine.start()
        yield FakeRig(
            engine=engine,
            hidden=HIDDEN,
            first_id=20,
            vocab=VOCAB,
            session_tokens=POSITIONS,
            max_sessions=9,
            backend=backend,
        )
        await engine.stop()
        assert backend.requests == {}
        assert backend.death is None
