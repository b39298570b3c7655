"""The whole of MiniCPM-o's Stage0 on a CPU, with toy weights: real engine, real encoders."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from stages.engine.engine import ResumableEngine
from stages.engine.values import Embeddings
from stages.engine.vllm_backend import VllmBackend
from stages.minicpmo.config import read_config
from stages.minicpmo.ear import EncoderEar
from stages.minicpmo.layout import RowCounts
from stages.minicpmo.loaded import Loaded
from stages.minicpmo.loading import engine_settings, load_ear, window
from stages.minicpmo.mel import MelState
from stages.minicpmo.ports import EncoderPlace, Heard
from stages.minicpmo.settings import MiniCPMOSettings, read_settings
from stages.minicpmo.stage0 import MiniCPMOStage0
from stages.minicpmo.tap import TapReceiver
from stages.minicpmo.tokenizer import Tokenizer
from stages.minicpmo.unit_model import EngineUnitModel

PROBE: Final = "tests.support.vllm_probe.ProbedTap"
TINY: dict[str, Any] = {
    "device": "cpu",
    "dtype": "float32",
    "language_model": {
        "max_sessions": 10,
        "session_tokens": 1024,
        "max_num_batched_tokens": 64,
        "kv_cache_memory_bytes": 32 << 20,
        "enforce_eager": True,
    },
    "decoding": {"greedy": True},
    "window": {"mode": "basic", "high": 980, "low": 900},
    "encoder_batch": 4,
}


class SpoilingEar:
    """The real ear, which spoils one number of the next unit's rows when it is told to."""

    def __init__(self, ear: EncoderEar) -> None:
        self.real = ear
        self.spoil_with: float | None = None

    def new_place(self) -> EncoderPlace:
        """Pass on."""
        return self.real.new_place()

    async def hear(self, place: EncoderPlace, mel: MelState, pcm: bytes) -> Heard:
        """Return what was heard, spoilt once if that was asked for."""
        heard = await self.real.hear(place, mel, pcm)
        if self.spoil_with is None:
            return heard
        rows = heard.seconds[-1].rows.clone()
        rows[3, 5], self.spoil_with = self.spoil_with, None
        spoilt = (*heard.seconds[:-1], Embeddings("audio", rows))
        return Heard(heard.mel, heard.place, spoilt)

    async def see(self, images: Sequence[bytes]) -> tuple[Embeddings, ...]:
        """Pass on."""
        return await self.real.see(images)

    async def learn_voice(self, pcm: bytes) -> Embeddings:
        """Pass on."""
        return await self.real.learn_voice(pcm)


@dataclass(slots=True, eq=False)
class RunningMiniCPMO:
    """A Stage0 that is warm, and what it is made of."""

    stage: MiniCPMOStage0
    engine: ResumableEngine
    backend: VllmBackend
    tap: TapReceiver
    ear: SpoilingEar

    async def tables(self) -> dict[str, int]:
        """Return how much is left of sessions and requests, in every process."""
        (worker,) = await self.engine.call_worker("tap_sizes")
        capacity = self.engine.capacity()
        return {
            **dict(worker),
            "registered": len(self.tap),
            "open": capacity.open_sessions,
            "reserved": capacity.kv_tokens_reserved,
            "frontend": len(self.backend.llm.output_processor.request_states),
        }


@asynccontextmanager
async def running_minicpmo(folder: Path) -> AsyncIterator[RunningMiniCPMO]:
    """Start everything, as the stage's own loader does, with a probe; end it at the end."""
    settings = read_settings({**TINY, "checkpoint": str(folder)})
    args = replace(engine_settings(settings, folder), worker_extension_cls=PROBE)
    backend = VllmBackend(args, time.monotonic)
    engine = ResumableEngine(args, backend, time.monotonic)
    await engine.start()
    tap = TapReceiver()
    await tap.start()
    await engine.call_worker("tap_open", tap.address)
    await engine.call_worker("probe")
    config, tokenizer = read_config(folder), Tokenizer(folder)
    ear = SpoilingEar(load_ear(settings, folder, config))
    loaded = Loaded(
        ear=ear,
        language=EngineUnitModel(engine, tap, tokenizer.specials),
        tokenizer=tokenizer,
        counts=RowCounts.from_config(
            audio_pool_step=config.audio_pool_step, query_num=config.query_num
        ),
        window=window(settings.window, tokenizer),
    )

    async def load(_: MiniCPMOSettings) -> Loaded:
        return loaded

    stage = MiniCPMOStage0(settings, load, time.monotonic)
    await stage.warm_up()
    try:
        yield RunningMiniCPMO(stage, engine, backend, tap, ear)
    finally:
        await engine.stop()
        await tap.close()
        ear.real.close()
