"""MiniCPM-o's language model in vLLM on the CPU, with its policy and its tap."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from session.ids import RequestId
from stages.engine.engine import ResumableEngine
from stages.engine.settings import EngineSettings
from stages.engine.values import Pieces, Sampling, Segment, SegmentDone
from stages.engine.vllm_backend import VllmBackend
from stages.minicpmo.policy_request import PolicyRequest
from stages.minicpmo.tap import TapReceiver
from stages.minicpmo.unit_record import UnitRecord
from stages.minicpmo.vllm_args import engine_fields
from tests.stages.minicpmo.vectors import TOKENS

PROBE: Final = "tests.support.vllm_probe.ProbedTap"
TABLES: Final = ("units", "hidden_rows", "policy_rows")


@dataclass(slots=True, eq=False)
class MiniCPMOEngine:
    """A running engine and its tap."""

    engine: ResumableEngine
    tap: TapReceiver

    async def unit(
        self, key: str, pieces: Pieces, request: PolicyRequest
    ) -> tuple[SegmentDone, UnitRecord]:
        """Append a unit; return what the engine and what the tap say of it."""
        self.tap.register(request.request_id)
        try:
            done = await self.engine.append(key, unit_segment(pieces, request))
            return done, await self.tap.take(request.request_id)
        finally:
            self.tap.unregister(request.request_id)

    async def sizes(self) -> dict[str, int]:
        """Return what the worker's tables hold."""
        (sizes,) = await self.engine.call_worker("tap_sizes")
        return dict(sizes)


def unit_segment(pieces: Pieces, request: PolicyRequest) -> Segment:
    """Return a unit's segment."""
    sampling = Sampling(
        max_tokens=request.rules.max_steps,
        stop_token_ids=tuple(sorted(TOKENS.terminators)),
        extra_args=request.to_extra_args(),
    )
    return Segment(RequestId(request.request_id), pieces, sampling, deadline_s=0.0)


def tiny_settings(folder: Path) -> EngineSettings:
    """Return settings for the tiny checkpoint on a CPU."""
    fields = engine_fields(is_v2_runner=False)
    fields["worker_extension_cls"] = PROBE
    return EngineSettings(
        **fields,
        model=folder,
        tokenizer=folder,
        dtype="float32",
        max_model_len=1024,
        session_tokens=1024,
        max_sessions=6,
        max_in_flight=6,
        max_num_seqs=8,
        max_num_batched_tokens=64,
        max_item_rows=64,
        kv_cache_memory_bytes=32 << 20,
        block_size=32,
        enforce_eager=True,
    )


@asynccontextmanager
async def running_engine(folder: Path) -> AsyncIterator[MiniCPMOEngine]:
    """Run an engine on a checkpoint."""
    engine = ResumableEngine(
        (settings := tiny_settings(folder)), VllmBackend(settings, time.monotonic), time.monotonic
    )
    tap = TapReceiver()
    await engine.start()
    try:
        await tap.start()
        await engine.call_worker("tap_open", tap.address)
        await engine.call_worker("probe")
        yield MiniCPMOEngine(engine, tap)
    finally:
        await engine.stop()
        await tap.close()
