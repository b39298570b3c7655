"""Conversations with a Stage0 of MiniCPM-o, whatever ear and language model it has."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from session.config import RuntimeConfig
from session.ids import RequestId, SessionId
from session.unit import SegmentMetrics, Unit, UnitResult
from stages.contract import Appended, Speech
from stages.minicpmo.mel import UNIT_SAMPLES
from stages.minicpmo.stage0 import MiniCPMOStage0

RUNTIME = RuntimeConfig()


def second(seed: int, seconds: int = 1) -> bytes:
    """Return PCM that is like nothing else but itself."""
    level = 0.02 + 0.1 * (seed % 7)
    noise = np.random.default_rng(seed).standard_normal(seconds * UNIT_SAMPLES)
    return (np.clip(level * noise, -0.99, 0.99) * 32_767).astype("<i2").tobytes()


@dataclass(frozen=True)
class Said:
    """What is compared of an answer: all that does not depend on the clock."""

    result: UnitResult
    tokens: tuple[int, ...] | None
    turn_start: bool | None

    @classmethod
    def of(cls, appended: Appended) -> "Said":
        """Leave the timing and the hidden rows away."""
        speech = appended.speech
        return cls(
            replace(appended.result, metrics=None),
            None if speech is None else speech.token_ids,
            None if speech is None else speech.turn_start,
        )


class Talk:
    """One session: numbers its units, and remembers the hidden rows of what was said."""

    def __init__(self, stage: MiniCPMOStage0, name: str, audio: int = 0) -> None:
        """`audio` chooses what is said; sessions with the same one hear the same."""
        self.stage = stage
        self.session = SessionId(name)
        self.audio = audio
        self.units = 0
        self.attempts = 0
        self.hidden: list[Any] = []
        self.speech: list[Speech] = []
        self.metrics: list[SegmentMetrics | None] = []

    async def open(self, runtime: RuntimeConfig = RUNTIME) -> "Talk":
        """Begin."""
        await self.stage.open(self.session, runtime)
        return self

    def unit(self, **changes: Any) -> Unit:
        """Return the next unit, as it is or changed."""
        return replace(Unit(second(1000 * self.audio + self.units)), **changes)

    async def append(self, unit: Unit | None = None) -> Said:
        """Give the next unit."""
        self.attempts += 1
        name = RequestId(f"{self.session}/{self.attempts}")
        appended = await self.stage.append(
            self.session, self.unit() if unit is None else unit, request_id=name
        )
        self.units += 1
        self.metrics.append(appended.result.metrics)
        assert appended.request_id == name
        if appended.speech is not None:
            self.speech.append(appended.speech)
            self.hidden.append(np.asarray(appended.speech.hidden))
        return Said.of(appended)

    async def listen(self, units: int) -> list[Said]:
        """Give so many units."""
        return [await self.append() for _ in range(units)]

    async def interrupt(self, heard: str = "", *, undoes_unit: bool = False) -> None:
        """Interrupt; an undone unit is given again."""
        await self.stage.interrupt(self.session, heard, undoes_unit=undoes_unit)
        self.units -= undoes_unit

    async def close(self) -> None:
        """End."""
        await self.stage.close(self.session)
