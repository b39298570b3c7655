"""MiniCPM-o's talker in vLLM on the CPU."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch

from session.ids import RequestId, SessionId
from stages.contract import Speech
from stages.engine.engine import ResumableEngine
from stages.engine.settings import EngineSettings
from stages.engine.vllm_backend import VllmBackend
from stages.minicpmo.checkpoint import load_tensors
from stages.minicpmo.config import read_config
from stages.minicpmo.talker import Talker, TalkerSetup, UnitCodes
from stages.minicpmo.talker_args import talker_engine_fields
from stages.minicpmo.talker_condition import TalkerCondition
from stages.minicpmo.talker_policy import PUBLISHED_TALKER
from stages.minicpmo.talker_unit import RECORDED_RULES
from tests.support.minicpmo_engine import tiny_settings

PROBE: Final = "tests.support.vllm_probe.LogitsProbe"
SESSION_TOKENS: Final = 512


@dataclass(slots=True, eq=False)
class TalkerEngine:
    """A running engine and the talker on it."""

    engine: ResumableEngine
    talker: Talker
    condition: TalkerCondition
    setup: TalkerSetup

    async def speak(
        self, key: str, unit: dict[str, Any], *, turn_start: bool, seed: int | None = None
    ) -> UnitCodes:
        """Speak a recorded unit."""
        speech = Speech(
            text="",
            segment_end=False,
            turn_end=bool(unit["end_of_turn"]),
            turn_start=turn_start,
            token_ids=tuple(unit["token_ids"].tolist()),
            hidden=unit["hidden"],
        )
        return await self.talker.speak(
            SessionId(key), speech, request_id=RequestId(key), seed=seed, deadline_s=0.0
        )

    async def logits(self, columns: list[int]) -> tuple[list[list[float]], list[int], list[float]]:
        """Return what the last step's logits were before any processor."""
        ((rows, best, mass),) = await self.engine.call_worker("last_logits", columns)
        return rows, best, mass


def talker_settings(folder: Path) -> EngineSettings:
    """Return settings for the tiny checkpoint on a CPU."""
    fields = talker_engine_fields(read_config(folder).tts, is_v2_runner=False)
    fields["worker_extension_cls"] = PROBE
    return replace(
        tiny_settings(folder),
        **fields,
        max_model_len=SESSION_TOKENS,
        session_tokens=SESSION_TOKENS,
    )


@asynccontextmanager
async def running_talker(folder: Path) -> AsyncIterator[TalkerEngine]:
    """Run an engine on a checkpoint."""
    settings = talker_settings(folder)
    engine = ResumableEngine(settings, VllmBackend(settings, time.monotonic), time.monotonic)
    await engine.start()
    try:
        await engine.call_worker("probe")
        config = read_config(folder)
        condition = TalkerCondition.from_tensors(
            config.tts,
            load_tensors(folder, config, ("tts",)),
            torch.device("cpu"),
            torch.float32,
        )
        setup = TalkerSetup.of(
            config.tts, RECORDED_RULES, PUBLISHED_TALKER, session_tokens=SESSION_TOKENS
        )
        yield TalkerEngine(engine, Talker(engine, condition, setup), condition, setup)
    finally:
        await engine.stop()
