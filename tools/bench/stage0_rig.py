"""Stage0 of MiniCPM-o in this process, with its encoders and its engine, put up to be measured.

The parts are the product's; only the worker's extension is one that also tells its times.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from session.ids import SessionId
from stages.engine.engine import ResumableEngine
from stages.engine.values import Embeddings
from stages.engine.vllm_backend import VllmBackend
from stages.minicpmo.config import MiniCPMOConfig, read_config
from stages.minicpmo.layout import RowCounts
from stages.minicpmo.loaded import Loaded
from stages.minicpmo.loading import engine_settings, load_ear, window
from stages.minicpmo.mel import MelState
from stages.minicpmo.ports import Ear, EncoderPlace, Heard, Question, Thought
from stages.minicpmo.settings import MiniCPMOSettings, WindowSettings, read_settings
from stages.minicpmo.special_tokens import SpecialTokens
from stages.minicpmo.stage0 import MiniCPMOStage0
from stages.minicpmo.tap import TapReceiver
from stages.minicpmo.tokenizer import Tokenizer
from stages.minicpmo.unit_decoder import PUBLISHED_RULES
from stages.minicpmo.unit_model import EngineUnitModel
from stages.minicpmo.windows import Window, WindowOff

EXTENSION: Final = "tools.bench.stage0_worker.MeasuredTap"
_DECODING: Final = {"max_steps": 20, "max_characters": 10_000}
"""A unit that speaks has 20 steps and is never cut for its text: made-up words are long."""
_H200: Final[dict[str, Any]] = {
    "device": "cuda",
    "dtype": "bfloat16",
    "language_model": {
        "load_format": "dummy",
        "max_sessions": 132,
        # 4000 positions and what is said while a level lasts; 128 of them fit into the memory.
        "session_tokens": 4608,
        "gpu_memory_utilization": 0.75,
        "max_num_batched_tokens": 1024,
        "cudagraph_mode": "FULL",
    },
    "window": {"mode": "off", "carried_tokens": 4400},
    "decoding": _DECODING,
}
_CPU: Final[dict[str, Any]] = {
    "device": "cpu",
    "dtype": "float32",
    "language_model": {
        "load_format": "dummy",
        "max_sessions": 10,
        "session_tokens": 4608,
        "kv_cache_memory_bytes": 128 << 20,
        "enforce_eager": True,
    },
    "window": {"mode": "off", "carried_tokens": 4400},
    "decoding": _DECODING,
}
MACHINES: Final = {"h200": _H200, "cpu": _CPU}


class TimedEar:
    """An ear that notes how long each call of `hear` took, waiting for its turn included."""

    def __init__(self, ear: Ear) -> None:
        self._ear = ear
        self._took_ms: list[float] = []

    def taken_ms(self) -> list[float]:
        """Return what was noted since the last call."""
        taken, self._took_ms = self._took_ms, []
        return taken

    def new_place(self) -> EncoderPlace:
        """Return where a conversation begins."""
        return self._ear.new_place()

    async def hear(self, place: EncoderPlace, mel: MelState, pcm: bytes) -> Heard:
        """Encode whole seconds, and note the time."""
        began = time.perf_counter()
        heard = await self._ear.hear(place, mel, pcm)
        self._took_ms.append((time.perf_counter() - began) * 1000)
        return heard

    async def see(self, images: Sequence[bytes]) -> tuple[Embeddings, ...]:
        """Encode pictures."""
        return await self._ear.see(images)

    async def learn_voice(self, pcm: bytes) -> Embeddings:
        """Encode a voice."""
        return await self._ear.learn_voice(pcm)


class TalkedLong(EngineUnitModel):
    """A language model whose conversations have said as much as the policy looks back on.

    The penalty for repetition costs by the length of the history, and a level is too short for one.
    """

    def __init__(self, engine: ResumableEngine, tap: TapReceiver, tokens: SpecialTokens) -> None:
        super().__init__(engine, tap, tokens)
        # Ordinary words, each once.
        self._said = tuple(range(1000, 1000 + PUBLISHED_RULES.history_window))

    async def think(self, session_id: SessionId, question: Question) -> Thought:
        """Put what is missing in front of the history; the unit hands on the whole."""
        speech = question.speech
        missing = len(self._said) - len(speech.history)
        if missing > 0:
            speech = replace(speech, history=self._said[:missing] + speech.history)
        return await super().think(session_id, replace(question, speech=speech))


@dataclass(frozen=True, slots=True)
class Rig:
    """Everything that runs."""

    settings: MiniCPMOSettings
    config: MiniCPMOConfig
    engine: ResumableEngine
    tap: TapReceiver
    ear: TimedEar
    loaded: Loaded
    started_s: float

    async def front(self, use: Window | None = None) -> MiniCPMOStage0:
        """Return a Stage0 on this engine, warmed up; without a window it keeps everything."""
        loaded = replace(self.loaded, window=use or WindowOff())

        async def load(_: MiniCPMOSettings) -> Loaded:
            return loaded

        model = MiniCPMOStage0(self.settings, load, time.monotonic)
        await model.warm_up()
        self.ear.taken_ms()
        return model

    def context_window(self, slack: int) -> Window:
        """Return the window that the product has by default, but for its slack."""
        return window(WindowSettings(slack_units=slack), self.loaded.tokenizer)

    async def worker(self, method: str, *args: Any) -> Any:
        """Call a method of the measured extension in the one worker."""
        (answer,) = await self.engine.call_worker(method, *args)
        return answer

    async def stop(self) -> None:
        """End the engine's processes."""
        await self.tap.close()
        await self.engine.stop()


def bench_settings(machine: str, folder: Path) -> MiniCPMOSettings:
    """Return a machine's settings for a model folder."""
    return read_settings({**MACHINES[machine], "checkpoint": str(folder)})


async def start_rig(settings: MiniCPMOSettings, folder: Path) -> Rig:
    """Start the engine, then load the encoders; minutes on a GPU that has no caches yet."""
    began = time.perf_counter()
    config, tokenizer = read_config(folder), Tokenizer(folder)
    args = replace(engine_settings(settings, folder), worker_extension_cls=EXTENSION)
    engine = ResumableEngine(args, VllmBackend(args, time.monotonic), time.monotonic)
    await engine.start()
    tap = TapReceiver()
    await tap.start()
    await engine.call_worker("tap_open", tap.address)
    await engine.call_worker("bench_begin")
    ear = await asyncio.to_thread(load_ear, settings, folder, config)
    await ear.warm_up()
    timed = TimedEar(ear)
    loaded = Loaded(
        ear=timed,
        language=TalkedLong(engine, tap, tokenizer.specials),
        tokenizer=tokenizer,
        counts=RowCounts.from_config(
            audio_pool_step=config.audio_pool_step, query_num=config.query_num
        ),
        window=WindowOff(),
    )
    return Rig(settings, config, engine, tap, timed, loaded, time.perf_counter() - began)


def session_name(number: int) -> SessionId:
    """Return a session's id."""
    return SessionId(f"bench-{number}")
