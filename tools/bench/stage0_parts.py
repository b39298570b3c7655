"""Single costs of Stage0: the floor of a token's time, an interruption, a rebuild."""

import asyncio
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import torch

from stages.engine.values import Embeddings, Ids, Piece
from stages.minicpmo.config import MiniCPMOConfig
from stages.minicpmo.stage0 import MiniCPMOStage0
from stages.minicpmo.tensor_shapes import expected_tensors
from tools.bench.stage0_levels import Crowd, Load
from tools.bench.stage0_rig import Rig, session_name

_COPIES: Final = 20
_COPIED_BYTES: Final = {"cuda": 2 << 30, "cpu": 256 << 20}
_APART: Final = 9000
"""Numbers of sessions that no level has."""
_ROWS: Final = 10


@dataclass(frozen=True, slots=True)
class Floor:
    """The least time of a token: every weight but the embedding is read once."""

    weight_bytes: int
    copied_bytes_per_s: float
    """Read and written, as a copy moves them."""

    @property
    def ms(self) -> float:
        """Return the floor."""
        return self.weight_bytes / self.copied_bytes_per_s * 1000


def measured_floor(rig: Rig) -> Floor:
    """Copy a large tensor on the model's device. Nothing else may run."""
    device = rig.settings.device
    source = torch.ones(_COPIED_BYTES[device], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    took_s = []
    for _ in range(_COPIES):
        began = time.perf_counter()
        target.copy_(source)
        if device == "cuda":
            torch.cuda.synchronize()
        took_s.append(time.perf_counter() - began)
    fastest_half = sorted(took_s)[_COPIES // 4]
    dtype = getattr(torch, rig.settings.dtype)
    del source, target
    if device == "cuda":
        torch.cuda.empty_cache()
    moved = 2 * _COPIED_BYTES[device] / fastest_half
    return Floor(read_values(rig.config) * dtype.itemsize, moved)


def read_values(config: MiniCPMOConfig) -> int:
    """Return how many of the language model's weights each token needs."""
    shapes = expected_tensors(config, ("llm",)).shapes
    return sum(math.prod(shape) for name, shape in shapes.items() if "embed_tokens" not in name)


@dataclass(slots=True)
class Interruptions:
    """Times in milliseconds, one an attempt."""

    cancel_ms: list[float] = field(default_factory=list)
    """`cancel` of the unit that is being spoken, until the engine does nothing for it any more."""
    interrupt_ms: list[float] = field(default_factory=list)
    """What Stage0 does about it besides."""
    answered_ms: list[float] = field(default_factory=list)
    """The next unit, which listens: from its sending to its answer, with the rebuild in it."""
    too_late: int = 0
    """Units that were over before they were cancelled."""


async def interruptions(rig: Rig, model: MiniCPMOStage0, load: Load, times: int) -> Interruptions:
    """Interrupt one session that speaks, again and again."""
    name = session_name(_APART)
    crowd = Crowd(rig, model, load)
    found = Interruptions()
    await crowd.open(name, asyncio.Semaphore(1))
    try:
        sent = await crowd.send(name, 0, time.perf_counter(), speaks=True)
        # In the middle of its tokens, which come after encoding and prefilling.
        wait_s = 0.6 * sent.done_ms / 1000
        for attempt in range(1, times + 1):
            speaking = asyncio.ensure_future(
                crowd.send(name, 2 * attempt, time.perf_counter(), speaks=True)
            )
            await asyncio.sleep(wait_s)
            began = time.perf_counter()
            await rig.loaded.language.cancel(name)
            cancelled = time.perf_counter()
            await model.interrupt(name, "", undoes_unit=False)
            interrupted = time.perf_counter()
            answer = await crowd.send(name, 2 * attempt + 1, interrupted, speaks=False)
            if (await speaking).failure is None or answer.failure is not None:
                found.too_late += 1
                continue
            found.cancel_ms.append((cancelled - began) * 1000)
            found.interrupt_ms.append((interrupted - cancelled) * 1000)
            found.answered_ms.append(answer.done_ms)
            await asyncio.sleep(0.1)
    finally:
        await model.close(name)
    return found


async def rebuilds_ms(rig: Rig, positions: int, times: int, pause_s: float = 0.05) -> list[float]:
    """Return what it takes to compute a session's memory of so many positions anew."""
    name = session_name(_APART + 1)
    took_ms = []
    await rig.engine.open(name)
    try:
        for attempt in range(times):
            pieces = tuple(_conversation(rig, positions, attempt))
            await rig.engine.replace(name, pieces)
            began = time.perf_counter()
            await rig.engine.prepare(name)
            took_ms.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(pause_s)
    finally:
        await rig.engine.close(name)
    return took_ms


def _conversation(rig: Rig, positions: int, seed: int) -> Iterator[Piece]:
    """Yield units that listened, as many as there is room for: rows of sound between ids."""
    tokens = rig.loaded.tokenizer.specials
    source = torch.Generator().manual_seed(seed)
    dtype = getattr(torch, rig.settings.dtype)
    shape = (_ROWS, rig.config.llm.hidden_size)
    for _ in range(positions // (_ROWS + 3)):
        yield Ids((tokens.unit,))
        yield Embeddings("audio", torch.randn(shape, generator=source).to(dtype))
        yield Ids((tokens.listen, tokens.unit_end))
