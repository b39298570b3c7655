"""MiniCPM-o's talker in vLLM on the CPU."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from session.ids import RequestId, SessionId
from stages.contract import Speech
from stages.engine.engine import ResumableEngine
from stages.minicpmo.checkpoint import load_tensors
from stages.minicpmo.config import read_config
from stages.minicpmo.talker import Talker, TalkerSetup, UnitCodes
from stages.minicpmo.talker_condition import TalkerCondition
from stages.minicpmo.talker_policy import PUBLISHED_TALKER
from stages.minicpmo.talker_unit import RECORDED_RULES


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


def talker_on(engine: ResumableEngine, folder: Path, session_tokens: int) -> TalkerEngine:
    """Return a checkpoint's talker, with the rules of the recording, on an engine that runs it."""
    config = read_config(folder)
    condition = TalkerCondition.from_tensors(
        config.tts,
        load_tensors(folder, config, ("tts",)),
        torch.device("cpu"),
        torch.float32,
    )
    setup = TalkerSetup.of(
        config.tts, RECORDED_RULES, PUBLISHED_TALKER, session_tokens=session_tokens
    )
    return TalkerEngine(engine, Talker(engine, condition, setup), condition, setup)
