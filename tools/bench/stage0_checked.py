"""MiniCPM-o's Stage0 with toy weights on a GPU, held against the recorded conversation.

`python -m tools.bench.stage0_checked [--device cuda]` prints what is equal and what is not, and
fails if anything is not. Numbers are float32, since the recording is; vLLM's runner, its scheduling
and its CUDA graphs are those of the real model.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from session.config import RuntimeConfig
from session.errors import DuplexError
from session.ids import RequestId, SessionId
from session.unit import Decision, Unit
from stages.contract import Appended
from stages.minicpmo.loading import load
from stages.minicpmo.settings import MiniCPMOSettings, read_settings
from stages.minicpmo.stage0 import MiniCPMOStage0
from stages.minicpmo.tiny_checkpoint import write_tiny_checkpoint

RECORDED: Final = Path(__file__).parents[2] / "tests" / "data" / "minicpmo"
SECOND_BYTES: Final = 32_000
UNITS: Final = 20
SESSIONS: Final = 8
ROWS_ALIKE: Final = {"cpu": 1e-5, "cuda": 5e-3}
"""On a GPU vLLM's attention multiplies float32 in 10 bits less, and steps hold other sessions."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """What a session's units came to."""

    decided: tuple[tuple[Any, ...], ...]
    rows: tuple[Any, ...]


class Checks:
    """Runs the checks on one Stage0 and counts what was not equal."""

    def __init__(
        self, stage: MiniCPMOStage0, recorded: dict[str, Any], sound: bytes, alike: float
    ) -> None:
        self._alike = alike
        self._stage = stage
        self._recorded = recorded
        self._sound = sound
        self.faults = 0

    def say(self, what: str, is_so: bool, detail: str = "") -> None:
        """Print one outcome."""
        self.faults += not is_so
        print(f"{'ok    ' if is_so else 'DIFFERS'} {what}{detail and ': '}{detail}", flush=True)

    async def recorded_conversation(self) -> None:
        """Compare every token of 30 units from their sound on."""
        session = SessionId("recorded")
        settings = self._recorded["settings"]
        await self._stage.open(
            session, RuntimeConfig(force_listen_count=settings["force_listen_count"])
        )
        equal = 0
        for case in self._recorded["units"]:
            at = case["unit"]
            unit = Unit(self._second(at), force_listen=at in settings["force_listen_units"])
            await self._stage.append(session, unit, request_id=RequestId(f"recorded/{at}"))
            done = self._stage.conversation(session).units[-1]
            equal += [*done.fed, done.terminator] == case["emitted"][:-1]
        await self._stage.close(session)
        units = len(self._recorded["units"])
        self.say("the recorded conversation", equal == units, f"{equal} of {units} units")

    async def neighbours(self) -> list[Spoken]:
        """Compare sessions beside each other with themselves alone."""
        alone = [await self._spoken(f"alone-{at}", at) for at in range(SESSIONS)]
        beside = await asyncio.gather(*(self._spoken(f"beside-{at}", at) for at in range(SESSIONS)))
        self._compare("sessions beside each other", alone, beside)
        return alone

    async def trouble(self, alone: list[Spoken]) -> None:
        """Compare sessions again, with units that are cut off on their way and given again."""
        troubled = await asyncio.gather(
            *(self._spoken(f"troubled-{at}", at, cut_every=3) for at in range(SESSIONS))
        )
        self._compare("sessions whose units were cut off", alone, troubled)

    def _compare(self, what: str, wanted: Sequence[Spoken], found: Sequence[Spoken]) -> None:
        pairs = list(zip(wanted, found, strict=True))
        equal = sum(one.decided == other.decided for one, other in pairs)
        apart = max(
            (
                float(np.abs(mine - theirs).max())
                for one, other in pairs
                if one.decided == other.decided
                for mine, theirs in zip(one.rows, other.rows, strict=True)
                if mine.size
            ),
            default=0.0,
        )
        self.say(f"{what}: tokens", equal == len(pairs), f"{equal} of {len(pairs)} sessions")
        self.say(f"{what}: hidden rows", apart < self._alike, f"at most {apart:.1e} apart")

    async def _spoken(self, name: str, at: int, cut_every: int = 0) -> Spoken:
        session = SessionId(name)
        await self._stage.open(session, RuntimeConfig())
        answers: list[Appended] = []
        for number in range(UNITS):
            unit = Unit(self._second(5 * at + number))
            if cut_every and number % cut_every == 1:
                await self._cut(session, unit, RequestId(f"{name}/{number}/cut"))
            name_of = RequestId(f"{name}/{number}")
            answers.append(await self._stage.append(session, unit, request_id=name_of))
        await self._stage.close(session)
        speeches = [one.speech for one in answers if one.speech is not None]
        decided = tuple(
            (one.result.decision is Decision.SPEAK, one.result.text, one.result.turn_end)
            for one in answers
        )
        return Spoken(
            (*decided, *(speech.token_ids for speech in speeches)),
            tuple(np.asarray(speech.hidden) for speech in speeches),
        )

    async def _cut(self, session: SessionId, unit: Unit, name: RequestId) -> None:
        """Give a unit and take it back before it has been answered, wherever it is by then."""
        running = asyncio.ensure_future(self._stage.append(session, unit, request_id=name))
        await asyncio.sleep(0.008)
        if running.done():
            raise RuntimeError("a unit was faster than its cutting off: nothing was tried")
        running.cancel()
        await asyncio.wait({running})

    def _second(self, at: int) -> bytes:
        seconds = len(self._sound) // SECOND_BYTES
        return self._sound[SECOND_BYTES * (at % seconds) : SECOND_BYTES * (at % seconds + 1)]


def settings_of(device: str, folder: Path) -> MiniCPMOSettings:
    """Return the tiny model's settings on a device."""
    return read_settings(
        {
            "checkpoint": str(folder),
            "device": device,
            "dtype": "float32",
            "language_model": {
                "max_sessions": SESSIONS,
                "session_tokens": 1024,
                "kv_cache_memory_bytes": 64 << 20,
                "enforce_eager": device == "cpu",
            },
            "decoding": {"greedy": True},
            "window": {"mode": "off"},
        }
    )


async def check(device: str) -> int:
    """Run all checks; return how many things were not equal."""
    torch.backends.cudnn.allow_tf32 = False
    recorded = json.loads((RECORDED / "free_run.json").read_text(encoding="utf-8"))
    with np.load(RECORDED / "mel.npz") as arrays:
        sound = arrays["pcm_int16"].astype("<i2").tobytes()
    texts = {int(token): text for token, text in recorded["token_text"].items()}
    ordinary = {token: text for token, text in texts.items() if token < _FIRST_SPECIAL}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "tiny"
        write_tiny_checkpoint(folder, texts=ordinary)
        stage = MiniCPMOStage0(settings_of(device, folder), load, time.monotonic)
        await stage.warm_up()
        checks = Checks(stage, recorded, sound, ROWS_ALIKE[device])
        await checks.recorded_conversation()
        alone = await checks.neighbours()
        try:
            await checks.trouble(alone)
        except DuplexError as error:
            checks.say("trouble", False, str(error))
    return checks.faults


_FIRST_SPECIAL: Final = 151_643


def main() -> int:
    """Check and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    faults = asyncio.run(check(parser.parse_args().device))
    print(f"{faults} differences")
    sys.stdout.flush()
    os._exit(min(faults, 1))  # the engine's processes end with this one


if __name__ == "__main__":
    sys.exit(main())
