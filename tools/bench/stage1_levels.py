"""Sessions that speak all the time, and how Stage1 keeps up with them.

A session is given a unit each second: words and hidden rows, both made up. A turn has some units;
with made-up weights its last one nearly always uses up its budget, which is four seconds of sound.
The next turn begins when that has been played, so a session speaks a second a second.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch

from session.config import RuntimeConfig
from session.errors import DuplexError
from session.ids import SessionId
from stages.contract import Speech
from stages.minicpmo.stage1 import MiniCPMOStage1
from tools.bench.stage1_player import Chunk, SpokenUnit, end_s, gaps_s, turns
from tools.bench.stage1_rig import VoiceRig

UNIT_S: Final = 1.0
TURN_UNITS: Final = 8
_TOKENS: Final = 10
_SPEECHES: Final = 64
_MOST_TOKEN: Final = 150_000
_WORDS: Final = " la" * _TOKENS


@dataclass(frozen=True, slots=True)
class VoiceLoad:
    """One level."""

    sessions: int
    seconds: int
    first_call_codes: int
    name: str = "level"


@dataclass(frozen=True, slots=True)
class Spoke:
    """A level's outcome."""

    load: VoiceLoad
    units: Sequence[Sequence[SpokenUnit]]
    """By session."""
    wall_s: float
    cpu_s: float
    """Of this process, with its threads."""
    worker: dict[str, float] = field(default_factory=dict)
    used_bytes: int = 0
    """On the GPU, by all processes."""

    @property
    def all_units(self) -> list[SpokenUnit]:
        """Return all sessions' units."""
        return [unit for of_session in self.units for unit in of_session]

    @property
    def good(self) -> list[SpokenUnit]:
        """Return the units that were spoken."""
        return [unit for unit in self.all_units if unit.failure is None and unit.chunks]

    @property
    def missed(self) -> int:
        """Return how many units came too late or never."""
        return sum(unit.is_missed for unit in self.all_units)

    @property
    def chunks(self) -> list[Chunk]:
        """Return all chunks that a network made."""
        return [chunk for unit in self.good for chunk in unit.chunks if chunk.batch]

    def first_ms(self, *, of_turns: bool) -> list[float]:
        """Return the times to a first chunk: of turns, or of the units behind their first."""
        return [
            unit.first_ms
            for unit in self.good
            if unit.is_first == of_turns and unit.first_ms is not None
        ]

    @property
    def last_ms(self) -> list[float]:
        """Return the times to the last chunk of units that do not end a turn."""
        return [unit.last_ms for unit in self.good if not unit.is_last and unit.last_ms is not None]

    def gaps_s(self, lead_s: float) -> list[float]:
        """Return the silences that players fall into who begin so long after a first chunk."""
        return [
            gap
            for of_session in self.units
            for turn in turns(of_session)
            for gap in gaps_s([chunk for unit in turn for chunk in unit.chunks], lead_s)
        ]

    @property
    def sound_s(self) -> float:
        """Return the seconds of sound that were made."""
        return sum(chunk.seconds for unit in self.good for chunk in unit.chunks)


def speeches(hidden: int) -> list[Speech]:
    """Return made-up units of ten tokens, with rows of so many values."""
    source = np.random.default_rng(5)
    return [
        Speech(
            _WORDS,
            segment_end=True,
            turn_end=False,
            token_ids=tuple(source.integers(0, _MOST_TOKEN, _TOKENS).tolist()),
            hidden=source.standard_normal((_TOKENS, hidden)).astype(np.float32),
        )
        for _ in range(_SPEECHES)
    ]


class Speakers:
    """The sessions of one level."""

    def __init__(self, rig: VoiceRig, model: MiniCPMOStage1, load: VoiceLoad) -> None:
        self._rig = rig
        self._model = model
        self._load = load
        self._speeches = speeches(rig.config.llm.hidden_size)
        self._names = [SessionId(f"speaker-{at}") for at in range(load.sessions)]

    async def measured(self) -> Spoke:
        """Open the sessions, run the level and close them."""
        rig, load = self._rig, self._load
        try:
            for name in self._names:
                await self._model.open(name, RuntimeConfig())
            await rig.worker("bench_take")
            cpu_s, began_s = time.process_time(), time.monotonic()
            units = await asyncio.gather(
                *(self._talk(at, name, began_s + 0.1) for at, name in enumerate(self._names))
            )
            return Spoke(
                load=load,
                units=units,
                wall_s=time.monotonic() - began_s,
                cpu_s=time.process_time() - cpu_s,
                worker=await rig.worker("bench_take"),
                used_bytes=used_bytes(rig.settings.device),
            )
        finally:
            for name in self._names:
                await self._model.close(name)

    async def _talk(self, at: int, name: SessionId, start_s: float) -> list[SpokenUnit]:
        load = self._load
        units: list[SpokenUnit] = []
        # Each session begins at another place of its turn, so that turns end at all times.
        place, is_first = at % TURN_UNITS, True
        turn: list[Chunk] = []
        due_s = start_s + at / load.sessions * UNIT_S
        while due_s < start_s + load.seconds:
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            is_last = place == TURN_UNITS - 1
            speech = self._speech(len(units) + 7 * at, is_first=is_first, is_last=is_last)
            unit = await self.speak(name, speech, due_s)
            units.append(unit)
            turn.extend(unit.chunks)
            due_s += UNIT_S
            place, is_first = place + 1, False
            if is_last or unit.failure is not None:
                due_s = max(due_s, end_s(turn) or due_s)
                place, is_first, turn = 0, True, []
        return units

    def _speech(self, number: int, *, is_first: bool, is_last: bool) -> Speech:
        one = self._speeches[number % _SPEECHES]
        return Speech(
            one.text,
            segment_end=True,
            turn_end=is_last,
            token_ids=one.token_ids,
            hidden=one.hidden,
            turn_start=is_first,
        )

    async def speak(self, name: SessionId, speech: Speech, due_s: float) -> SpokenUnit:
        """Speak one unit and note when each of its chunks came."""
        sent_s = time.monotonic()
        chunks: list[Chunk] = []
        failure = None
        try:
            async for one in self._model.speak(name, speech):
                metrics, now_s = one.metrics, time.monotonic()
                if metrics is None:
                    chunks.append(Chunk(now_s, one.samples))
                    continue
                made = (metrics.flow_ms, metrics.vocoder_ms, metrics.waited_ms, metrics.batch)
                chunks.append(Chunk(now_s, one.samples, *made))
        except DuplexError as error:
            failure = f"{error!r}"
        timing = self._rig.talker.take(name)
        return SpokenUnit(
            is_first=speech.turn_start,
            is_last=speech.turn_end,
            due_s=due_s,
            sent_s=sent_s,
            chunks=tuple(chunks),
            ttft_ms=timing.ttft_ms if timing else 0.0,
            itls_ms=timing.itls_ms if timing else (),
            talker_ms=timing.total_ms if timing else 0.0,
            failure=failure,
        )


def used_bytes(device: str) -> int:
    """Return what all processes have of the GPU's memory."""
    if device != "cuda":
        return 0
    free, whole = torch.cuda.mem_get_info()
    return whole - free
