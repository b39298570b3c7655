"""The real engine with the tiny checkpoint, for tests."""

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stages.engine.backend import Output
from stages.engine.engine import ResumableEngine
from stages.engine.settings import EngineSettings
from stages.engine.values import Pieces, Sampling, Segment, SegmentDone
from stages.engine.vllm_backend import VllmBackend, VllmStream
from stages.minicpmo.vllm_args import ARCHITECTURE, PLACEHOLDER_IDS
from tests.support.engine_contract import EngineRig
from tests.support.row_recorder import QUALNAME

POSITIONS = 1024
SESSIONS = 9
HIDDEN = 128
FIRST_ID = 1000
VOCAB = 151748
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""Engines run beside each other here; one thread for each core would have them wait in turns."""

Rows = dict[int, npt.NDArray[np.float32]]
"""Hidden rows by position."""


class WatchedBackend(VllmBackend):
    """vLLM, and a note of every request and output."""

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings, time.monotonic)
        self.names: list[str] = []
        self.output_came = asyncio.Event()
        self._watched_settings = settings

    def stream(self, request_id: str) -> "WatchedStream":
        self.names.append(request_id)
        return WatchedStream(self, request_id, self._watched_settings)


class WatchedStream(VllmStream):
    """A request whose outputs are noted."""

    def __init__(self, backend: WatchedBackend, name: str, settings: EngineSettings) -> None:
        super().__init__(backend.llm, name, settings, time.monotonic)
        self._backend = backend

    async def next(self) -> Output:
        output = await super().next()
        self._backend.output_came.set()
        return output


def cpu_settings(folder: Path, **changes: Any) -> EngineSettings:
    """Return settings for the tiny checkpoint on a CPU."""
    values: dict[str, Any] = {
        "model": folder,
        "tokenizer": folder,
        "dtype": "float32",
        "max_model_len": POSITIONS,
        "session_tokens": POSITIONS,
        "max_sessions": SESSIONS,
        "max_in_flight": 8,
        "max_num_seqs": SESSIONS + 1,
        "max_num_batched_tokens": 256,
        "max_item_rows": 64,
        "kv_cache_memory_bytes": 10 << 20,
        "block_size": 32,
        "enforce_eager": True,
        "placeholder_ids": PLACEHOLDER_IDS,
        "hf_overrides": {"architectures": [ARCHITECTURE]},
        "worker_extension_cls": QUALNAME,
    }
    return EngineSettings(**(values | changes))


@dataclass(slots=True, kw_only=True)
class VllmRig(EngineRig):
    """The running engine."""

    backend: WatchedBackend

    async def unheard(self, pieces: Pieces) -> Segment:
        segment = self.segment(pieces)
        sampling = Sampling(max_tokens=1, extra_args={"no message can carry this": object()})
        return Segment(segment.request_id, pieces, sampling, segment.deadline_s)

    async def inside(self, key: str, segment: Segment) -> "asyncio.Task[SegmentDone]":
        self.backend.output_came.clear()
        append = asyncio.create_task(self.engine.append(key, segment))
        await self.backend.output_came.wait()
        return append

    async def still_held(self) -> list[str]:
        found: list[str] = []
        for _ in range(1_000):  # the worker forgets a request in the step after the abort
            found = await self.held_now()
            if not found:
                break
            await asyncio.sleep(0.01)
        return found

    async def held_now(self) -> list[str]:
        frontend = self.backend.llm.output_processor
        (worker,) = await self.engine.call_worker("known_requests")
        found = [*frontend.request_states, *frontend.external_req_ids, *worker]
        # vLLM does this only when no block of keys and values is in use.
        if not await self.backend.llm.reset_prefix_cache():
            found.append("blocks of memory")
        return found

    async def rows(self, request_id: str) -> Rows:
        """Return the hidden rows that the engine computed for one of its requests."""
        (recorded,) = await self.engine.call_worker("take_rows", request_id)
        rows: Rows = {}
        for position, count, taken in recorded:
            values = np.frombuffer(taken, np.float32).reshape(count, -1)
            rows |= {position + index: values[index] for index in range(count)}
        return rows


def furthest(one: Rows, other: Rows) -> float:
    """Return the greatest difference of two requests' rows; they must be of equal positions."""
    assert set(one) == set(other), "the requests have rows of different positions"
    assert one, "there are no rows"
    return max(float(np.abs(one[position] - other[position]).max()) for position in one)


async def start_rig(folder: Path) -> VllmRig:
    """Start the engine; about 25 s."""
    settings = cpu_settings(folder)
    backend = WatchedBackend(settings)
    engine = ResumableEngine(settings, backend, time.monotonic)
    await engine.start()
    await engine.call_worker("record_rows")
    return VllmRig(
        engine=engine,
        hidden=HIDDEN,
        first_id=FIRST_ID,
        vocab=VOCAB,
        session_tokens=POSITIONS,
        max_sessions=SESSIONS,
        backend=backend,
    )
