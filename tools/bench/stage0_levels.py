"""Sessions that send a second of sound each second, and how Stage0 keeps up with them.

Weights are made up, so what the model would decide means nothing. Which units speak is scripted:
three in a row listen by force, the next three are free, and chance alone would end one early: the
tokens that end a unit are few in 151 748 that are about equally likely. Those that did are counted.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

import numpy as np

from session.config import RuntimeConfig
from session.errors import DuplexError
from session.ids import RequestId, SessionId
from session.unit import INPUT_RATE_HZ, SegmentMetrics, Unit
from stages.minicpmo.stage0 import MiniCPMOStage0
from tools.bench.stage0_rig import Rig, session_name

UNIT_S: Final = 1.0
HEARD_BEFORE_S: Final = 20
"""Sound that a session has heard when its level begins: the encoder forgets at 29 s."""
_PIECE_S: Final = 20
_UNIT_POSITIONS: Final = 13
_IN_A_ROW: Final = 3
_AT_ONCE: Final = 16
_SOUNDS: Final = 64
_OPENING: Final = "a"
"""A text without merges: each letter is a token."""


@dataclass(frozen=True, slots=True)
class Load:
    """One level."""

    sessions: int
    context: int
    """Positions that each session holds when the level begins, sound included."""
    seconds: int
    name: str = "level"
    first_session: int = 0
    """Sessions have numbers from here on, so that two levels can run at once."""
    heard_s: int = HEARD_BEFORE_S


@dataclass(frozen=True, slots=True)
class Sent:
    """One unit."""

    speaks: bool
    late_ms: float
    """From its time to when it was sent."""
    done_ms: float
    """From its time to its answer."""
    metrics: SegmentMetrics | None
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """A level's outcome."""

    load: Load
    units: Sequence[Sent]
    encoder_ms: Sequence[float]
    opening_s: float
    """What it took to fill all contexts."""
    wall_s: float
    cpu_s: float
    """Of this process, encoders included."""
    max_steps: int
    worker: dict[str, float] = field(default_factory=dict)

    def done_ms(self, *, speaks: bool) -> list[float]:
        """Return the times of the answers of one kind."""
        return [one.done_ms for one in self.good if one.speaks == speaks]

    @property
    def good(self) -> list[Sent]:
        """Return the units that were answered."""
        return [one for one in self.units if one.failure is None]

    @property
    def metrics(self) -> list[SegmentMetrics]:
        """Return the stage's own figures of all answered units."""
        return [one.metrics for one in self.good if one.metrics is not None]

    @property
    def tpots_ms(self) -> list[float]:
        """Return the mean time of a token after the first, of each unit that spoke."""
        return [one.metrics.tpot_ms for one in self.good if one.speaks and one.metrics is not None]

    @property
    def itls_ms(self) -> list[float]:
        """Return the times between tokens of all units that spoke."""
        return [
            itl
            for one in self.good
            if one.speaks and one.metrics is not None
            for itl in one.metrics.itls_ms
        ]

    @property
    def missed(self) -> int:
        """Return how many units were answered later than a second after their time, or never."""
        return sum(one.failure is not None or one.done_ms > UNIT_S * 1000 for one in self.units)

    @property
    def short(self) -> int:
        """Return how many units that were to speak ended early."""
        return sum(
            one.metrics is not None and one.metrics.generated_tokens < self.max_steps
            for one in self.good
            if one.speaks
        )


def sounds() -> list[bytes]:
    """Return seconds of noise as 16 kHz PCM."""
    source = np.random.default_rng(4)
    return [(source.normal(0, 2000, INPUT_RATE_HZ)).astype("<i2").tobytes() for _ in range(_SOUNDS)]


class Crowd:
    """The sessions of one level."""

    def __init__(self, rig: Rig, model: MiniCPMOStage0, load: Load) -> None:
        self._rig = rig
        self._model = model
        self._load = load
        self._sounds = sounds()
        numbers = range(load.first_session, load.first_session + load.sessions)
        self._names = [session_name(number) for number in numbers]
        self._is_stopped = False
        self.talking = asyncio.Event()
        """All contexts are filled."""

    def stop(self) -> None:
        """Let the level end with the units that are on their way."""
        self._is_stopped = True

    async def measured(self) -> Measured:
        """Open the sessions, fill their contexts, run the level and close them."""
        rig, load = self._rig, self._load
        began = time.perf_counter()
        gate = asyncio.Semaphore(_AT_ONCE)
        try:
            await asyncio.gather(*(self.open(name, gate) for name in self._names))
            opening_s = time.perf_counter() - began
            rig.ear.taken_ms()
            await rig.worker("bench_take")
            cpu_s, began = time.process_time(), time.perf_counter()
            start_s = began + 0.2
            self.talking.set()
            sent = await asyncio.gather(
                *(self._talk(at, name, start_s) for at, name in enumerate(self._names))
            )
            return Measured(
                load=load,
                units=[one for of_session in sent for one in of_session],
                encoder_ms=rig.ear.taken_ms(),
                opening_s=opening_s,
                wall_s=time.perf_counter() - began,
                cpu_s=time.process_time() - cpu_s,
                max_steps=rig.settings.decoding.max_steps,
                worker=await rig.worker("bench_take"),
            )
        finally:
            for name in self._names:
                await self._model.close(name)

    async def open(self, name: SessionId, gate: asyncio.Semaphore) -> None:
        """Open a session and let it hear what fills its context."""
        text = max(1, self._load.context - self._load.heard_s * _UNIT_POSITIONS)
        async with gate:
            await self._model.restore(name, RuntimeConfig(), [_OPENING * text])
            # In pieces: one over the encoder's reset keeps a second memory until the next.
            for first in range(0, self._load.heard_s, _PIECE_S):
                pcm = b"".join(self._sounds[first : min(first + _PIECE_S, self._load.heard_s)])
                unit = Unit(pcm, force_listen=True)
                await self._model.append(name, unit, request_id=RequestId(f"{name}/open{first}"))

    async def _talk(self, at: int, name: SessionId, start_s: float) -> list[Sent]:
        sent = []
        for number in range(self._load.seconds):
            due_s = start_s + (number + at / self._load.sessions) * UNIT_S
            await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
            if self._is_stopped:
                break
            speaks = (number // _IN_A_ROW + at) % 2 == 0
            sent.append(await self.send(name, number, due_s, speaks=speaks))
        return sent

    async def send(self, name: SessionId, number: int, due_s: float, *, speaks: bool) -> Sent:
        """Send one unit and wait for its answer."""
        pcm = self._sounds[(number * 7 + crc32(name.encode())) % _SOUNDS]
        unit = Unit(pcm, force_listen=not speaks)
        late_ms = (time.perf_counter() - due_s) * 1000
        request_id = RequestId(f"{name}/{number}")
        try:
            answer = await self._model.append(name, unit, request_id=request_id)
        except DuplexError as error:
            done_ms = (time.perf_counter() - due_s) * 1000
            return Sent(speaks, late_ms, done_ms, None, failure=f"{error!r}")
        done_ms = (time.perf_counter() - due_s) * 1000
        return Sent(speaks, late_ms, done_ms, answer.result.metrics)
