"""Stage1 of MiniCPM-o in this process, with its talker's engine, put up to be measured.

The parts are the product's; only the worker's extension and the talker also tell their times.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from session.ids import RequestId, SessionId
from stages.contract import Speech
from stages.engine.engine import ResumableEngine
from stages.engine.values import SegmentTiming
from stages.engine.vllm_backend import VllmBackend
from stages.minicpmo.config import MiniCPMOConfig, read_config
from stages.minicpmo.loaded_voice import LoadedVoice
from stages.minicpmo.loading import checkpoint_folder
from stages.minicpmo.loading_voice import (
    load_condition,
    load_prompts,
    load_token2wav,
    talker_engine_settings,
    voice_memory,
)
from stages.minicpmo.settings import TINY, MiniCPMOSettings, read_settings
from stages.minicpmo.stage1 import MiniCPMOStage1
from stages.minicpmo.talker import Talker, TalkerSetup, UnitCodes
from stages.minicpmo.talker_condition import TalkerCondition
from stages.minicpmo.talker_policy import PUBLISHED_TALKER
from stages.minicpmo.talker_unit import SERVING_RULES, Codes
from stages.minicpmo.voice_desk import VoiceDesk

EXTENSION: Final = "tools.bench.stage1_worker.MeasuredTalker"
_H200: Final[dict[str, Any]] = {
    "device": "cuda",
    "dtype": "bfloat16",
    "talker": {
        "load_format": "dummy",
        "max_sessions": 66,
        "session_tokens": 2048,
        # 20 layers x 2 x 768 x 2 bytes = 61 440 bytes a position: 8.3 GB, and some to spare.
        "kv_cache_memory_bytes": 9 << 30,
        # vLLM looks whether so much is free, even where it is told what to take.
        "gpu_memory_utilization": 0.12,
        "cudagraph_mode": "FULL",
    },
    "voice": {"dtype": "float16", "max_batch": 16},
}
_CPU: Final[dict[str, Any]] = {
    "checkpoint": TINY,
    "device": "cpu",
    "dtype": "float32",
    "talker": {
        "max_sessions": 6,
        "session_tokens": 1024,
        "kv_cache_memory_bytes": 64 << 20,
        "enforce_eager": True,
    },
    "voice": {"max_batch": 2, "steps": 1},
}
MACHINES: Final = {"h200": _H200, "cpu": _CPU}


class TimedTalker(Talker):
    """A talker that notes how each unit's codes came."""

    def __init__(
        self, engine: ResumableEngine, condition: TalkerCondition, setup: TalkerSetup
    ) -> None:
        super().__init__(engine, condition, setup)
        self._timings: dict[SessionId, SegmentTiming] = {}

    def take(self, session_id: SessionId) -> SegmentTiming | None:
        """Return the timing of the session's last unit, once."""
        return self._timings.pop(session_id, None)

    async def speak(
        self,
        session_id: SessionId,
        speech: Speech,
        *,
        request_id: RequestId,
        seed: int | None,
        deadline_s: float,
        on_codes: Callable[[Codes], None] | None = None,
    ) -> UnitCodes:
        """Speak, and note the timing."""
        self._timings.pop(session_id, None)
        unit = await super().speak(
            session_id,
            speech,
            request_id=request_id,
            seed=seed,
            deadline_s=deadline_s,
            on_codes=on_codes,
        )
        self._timings[session_id] = unit.timing
        return unit


@dataclass(frozen=True, slots=True)
class VoiceRig:
    """Everything that runs."""

    settings: MiniCPMOSettings
    config: MiniCPMOConfig
    engine: ResumableEngine
    talker: TimedTalker
    loaded: LoadedVoice
    started_s: float

    async def front(self, first_call_codes: int) -> MiniCPMOStage1:
        """Return a Stage1 on these parts, warmed up, whose turns begin with so many codes."""
        voice = self.settings.voice.model_copy(update={"first_call_codes": first_call_codes})
        settings = self.settings.model_copy(update={"voice": voice})

        async def load(_: MiniCPMOSettings) -> LoadedVoice:
            return self.loaded

        model = MiniCPMOStage1(settings, load, time.monotonic)
        await model.warm_up()
        return model

    async def worker(self, method: str, *args: Any) -> Any:
        """Call a method of the measured extension in the one worker."""
        (answer,) = await self.engine.call_worker(method, *args)
        return answer

    async def stop(self) -> None:
        """End the engine's processes."""
        self.loaded.desk.close()
        await self.engine.stop()


def rig_settings(
    machine: str, folder: Path, changes: Mapping[str, Any] = MappingProxyType({})
) -> MiniCPMOSettings:
    """Return a machine's settings with some changed; the folder has the config of a GPU's model.

    `changes` are by "group.field". ValueError names a field that there is not.
    """
    raw = deepcopy({"checkpoint": str(folder), **MACHINES[machine]})
    for name, value in changes.items():
        *groups, last = name.split(".")
        place = raw
        for group in groups:
            place = place.setdefault(group, {})
        place[last] = value
    return read_settings(raw)


async def start_voice_rig(settings: MiniCPMOSettings) -> VoiceRig:
    """Start the engine, then load the rest."""
    began_s = time.perf_counter()
    folder = await asyncio.to_thread(checkpoint_folder, settings)
    config = read_config(folder)
    setup = TalkerSetup.of(
        config.tts, SERVING_RULES, PUBLISHED_TALKER, session_tokens=settings.talker.session_tokens
    )
    args = replace(
        talker_engine_settings(settings, folder, config.tts), worker_extension_cls=EXTENSION
    )
    engine = ResumableEngine(args, VllmBackend(args, time.monotonic), time.monotonic)
    await engine.start()
    try:
        await engine.call_worker("bench_begin")
        condition = await asyncio.to_thread(load_condition, settings, folder, config)
        voices = await asyncio.to_thread(load_token2wav, settings, folder)
        prompts = load_prompts(settings, folder)
        talker = TimedTalker(engine, condition, setup)
        loaded = LoadedVoice(
            talker=talker,
            desk=VoiceDesk(voices, batch=settings.voice.max_batch),
            prompts=prompts,
            memory=voice_memory(settings, voices, prompts.own),
        )
    except BaseException:
        await engine.stop()
        raise
    took_s = time.perf_counter() - began_s
    return VoiceRig(settings, config, engine, talker, loaded, took_s)
