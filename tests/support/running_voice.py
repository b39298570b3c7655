"""The whole of MiniCPM-o's Stage1 on a CPU, with toy weights: real engine, flow and vocoder."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from session.config import RuntimeConfig
from session.ids import RequestId, SessionId
from session.unit import SpeechChunk
from stages.contract import Speech
from stages.engine.engine import ResumableEngine
from stages.engine.vllm_backend import VllmBackend
from stages.minicpmo.config import read_config
from stages.minicpmo.loaded_voice import LoadedVoice
from stages.minicpmo.loading_voice import (
    load_condition,
    load_sound,
    talker_engine_settings,
    talker_setup,
)
from stages.minicpmo.settings import MiniCPMOSettings, read_settings
from stages.minicpmo.stage1 import MiniCPMOStage1
from stages.minicpmo.talker import Talker, TalkerSetup, UnitCodes
from stages.minicpmo.talker_condition import TalkerCondition
from stages.minicpmo.talker_unit import Codes
from stages.minicpmo.voice_memory import VoiceMemory

PROBE: Final = "tests.support.vllm_probe.LogitsProbe"
TINY_VOICE: Final[dict[str, Any]] = {
    "device": "cpu",
    "dtype": "float32",
    "talker": {
        "max_sessions": 4,
        "session_tokens": 512,
        "max_num_batched_tokens": 128,
        "kv_cache_memory_bytes": 8 << 20,
        "enforce_eager": True,
    },
}
TOKENS: Final = 9
"""Of a unit."""
HIDDEN: Final = 128


class NotingTalker(Talker):
    """The real talker, which keeps what it said, and can tell when it is in the middle of it."""

    def __init__(
        self, engine: ResumableEngine, condition: TalkerCondition, setup: TalkerSetup
    ) -> None:
        super().__init__(engine, condition, setup)
        self.codes: dict[SessionId, list[Codes]] = {}
        self.is_talking = asyncio.Event()
        """Set once a unit has its first codes, until somebody clears it."""

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
        """Speak, and note the codes."""

        def listen(codes: Codes) -> None:
            self.is_talking.set()
            if on_codes is not None:
                on_codes(codes)

        unit = await super().speak(
            session_id,
            speech,
            request_id=request_id,
            seed=seed,
            deadline_s=deadline_s,
            on_codes=listen,
        )
        self.codes.setdefault(session_id, []).append(unit.codes)
        return unit


@dataclass(slots=True, eq=False)
class RunningVoice:
    """A Stage1 that is warm, and what it is made of."""

    stage: MiniCPMOStage1
    engine: ResumableEngine
    backend: VllmBackend
    talker: NotingTalker
    loaded: LoadedVoice
    settings: MiniCPMOSettings

    def tables(self) -> dict[str, int]:
        """Return how much is left of sessions and requests; all is 0 when nobody is there."""
        capacity = self.engine.capacity()
        return {
            "open": capacity.open_sessions,
            "reserved": capacity.kv_tokens_reserved,
            "held": capacity.kv_tokens_used,
            "frontend": len(self.backend.llm.output_processor.request_states),
            "calls": self.loaded.desk.waiting,
            "sound": self.loaded.memory.reserved_bytes,
        }

    async def other(self, memory: VoiceMemory | None = None, **voice: Any) -> MiniCPMOStage1:
        """Return another Stage1 on the same parts, with other settings or memory."""
        own = self.settings.voice.model_copy(update=voice)
        settings = self.settings.model_copy(update={"voice": own})
        return await _stage(settings, replace(self.loaded, memory=memory or self.loaded.memory))


class Mouth:
    """One session: makes up its units, and speaks them."""

    def __init__(self, stage: MiniCPMOStage1, name: str, words: int) -> None:
        """`words` chooses what is said; sessions with the same ones are told the same."""
        self.stage = stage
        self.session = SessionId(name)
        self._words = words

    async def open(self, sample: bytes = b"") -> "Mouth":
        """Begin; a sample is the recording of a voice."""
        await self.stage.open(self.session, RuntimeConfig(voice_sample=sample))
        return self

    def unit(self, number: int, **flags: bool) -> Speech:
        """Return one of its units."""
        source = np.random.default_rng([self._words, number])
        return Speech(
            text=f" word{self._words} number{number}",
            segment_end=True,
            turn_end=flags.get("turn_end", False),
            turn_start=flags.get("turn_start", False),
            token_ids=tuple(source.integers(0, 150_000, TOKENS).tolist()),
            hidden=source.standard_normal((TOKENS, HIDDEN)).astype(np.float32),
        )

    async def speak(self, number: int, **flags: bool) -> list[SpeechChunk]:
        """Speak a unit to its end."""
        return [c async for c in self.stage.speak(self.session, self.unit(number, **flags))]

    async def turn(self, units: Sequence[int]) -> list[list[SpeechChunk]]:
        """Speak these units as one turn."""
        return await self.turn_on(units, turn_start=True)

    async def turn_on(
        self, units: Sequence[int], *, turn_start: bool = False
    ) -> list[list[SpeechChunk]]:
        """Go on with a turn by these units, the last of which ends it."""
        spoken = []
        for place, number in enumerate(units):
            flags = {"turn_start": turn_start and place == 0, "turn_end": place == len(units) - 1}
            spoken.append(await self.speak(number, **flags))
        return spoken

    async def close(self) -> None:
        """End."""
        await self.stage.close(self.session)


@asynccontextmanager
async def running_voice(checkpoint: Path, voice: Path) -> AsyncIterator[RunningVoice]:
    """Start everything, as the stage's own loader does, with a probe; end it at the end."""
    own = {"folder": str(voice), "max_batch": 4}
    settings = read_settings({**TINY_VOICE, "checkpoint": str(checkpoint), "voice": own})
    config = read_config(checkpoint)
    args = talker_engine_settings(settings, checkpoint, config.tts)
    args = replace(args, worker_extension_cls=PROBE)
    backend = VllmBackend(args, time.monotonic)
    engine = ResumableEngine(args, backend, time.monotonic)
    await engine.start()
    try:
        await engine.call_worker("probe")
        condition = load_condition(settings, checkpoint, config)
        talker = NotingTalker(engine, condition, talker_setup(settings, config.tts))
        loaded = load_sound(settings, checkpoint, talker)
        stage = await _stage(settings, loaded)
        yield RunningVoice(stage, engine, backend, talker, loaded, settings)
        loaded.desk.close()
    finally:
        await engine.stop()


async def _stage(settings: MiniCPMOSettings, loaded: LoadedVoice) -> MiniCPMOStage1:
    async def load(_: MiniCPMOSettings) -> LoadedVoice:
        return loaded

    stage = MiniCPMOStage1(settings, load, time.monotonic)
    await stage.warm_up()
    return stage
