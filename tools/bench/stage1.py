"""MiniCPM-o's Stage1 in real time, by number of sessions, alone and beside its Stage0.

On one GPU it has the published sizes and random weights. On a CPU it has the tiny checkpoint: that
shows that the program runs, and no figure of it means anything.

levels    sessions that speak all the time, with first calls of 28 and of 12 codes
beside    the same while Stage0 serves as many sessions in another process; and how that one fares
together  both joined by a pipe: from a committed unit to the first sound of its answer
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from stages.minicpmo.stage1 import MiniCPMOStage1
from tools.bench.stage0_folder import PUBLISHED, write_folder
from tools.bench.stage0_levels import Measured
from tools.bench.stage1_levels import TURN_UNITS, Speakers, Spoke, VoiceLoad
from tools.bench.stage1_line import LevelDone, RunLevel, RunTalks, Talking, TalksDone
from tools.bench.stage1_mouth import Mouth
from tools.bench.stage1_rig import MACHINES, VoiceRig, rig_settings, start_voice_rig
from tools.bench.stage1_stage0 import Stage0Process, level_load
from tools.bench.stage1_tables import HEADER, STAGE0_HEADER, stage0_row, voice_row
from tools.bench.tables import spread, table_head, table_row

PARTS: Final = ("levels", "beside", "together")
_STAGE0_WITHIN_S: Final = 400.0
_CONTEXT: Final = 300
_TALKS: Final = (
    "sessions",
    "units",
    "missed or failed",
    "commit → decision p50 / p95 / p99 / max ms",
    "commit → first chunk p50 / p95 / p99 / max ms",
    "later unit → first chunk p50 / p95 / p99 ms",
    "unit → last chunk p50 / p95 / p99 / max ms",
    "cancel → obeyed p50 / max ms",
    "cancel → next decision p50 / p95 / max ms",
    "cancel → next first chunk p50 / p95 / max ms",
    "answers, cancels",
)
_SCRIPT: Final = (
    "Random weights. A session is given a unit each second, ten tokens with made-up hidden rows; a "
    f"turn has {TURN_UNITS} units and the next one begins when it has been played. Its last unit "
    "uses up its budget nearly always: 103 codes, four seconds. Times are from when a unit was "
    "due; missed: the last chunk (of a turn's last unit: the first) came later than 1 s, or never. "
    "A gap is a silence that a player falls into who plays on from a turn's first chunk."
)


@dataclass(frozen=True, slots=True)
class _Options:
    machine: str
    parts: tuple[str, ...]
    sessions: tuple[int, ...]
    first_call_codes: tuple[int, ...]
    seconds: int
    limit_s: float
    changes: Mapping[str, Any]
    """Of Stage1's settings, by "group.field"."""


@dataclass(slots=True)
class _Run:
    options: _Options
    rig: VoiceRig
    until_s: float
    models: dict[int, MiniCPMOStage1]
    """By the codes of a turn's first call."""
    stage0: Stage0Process | None

    def has_time(self, seconds: float, what: str) -> bool:
        """Say whether there is so much left, and print it if not."""
        left_s = self.until_s - time.monotonic()
        if left_s < seconds:
            print(f"\n{what}: left out, {left_s:.0f} s are left", flush=True)
        return left_s >= seconds

    @property
    def left_s(self) -> float:
        """Seconds that are left, with some to end in."""
        return max(1.0, self.until_s - time.monotonic() + 20)

    async def model(self, first_call_codes: int) -> MiniCPMOStage1:
        """Return the Stage1 whose turns begin with so many codes."""
        if first_call_codes not in self.models:
            self.models[first_call_codes] = await self.rig.front(first_call_codes)
        return self.models[first_call_codes]

    async def level(self, load: VoiceLoad) -> Spoke:
        """Run a level and print its line."""
        model = await self.model(load.first_call_codes)
        level = await Speakers(self.rig, model, load).measured()
        print(voice_row(level), flush=True)
        failures = {unit.failure for unit in level.all_units if unit.failure is not None}
        for failure in sorted(failures)[:3]:
            print(f"failed: {failure}", file=sys.stderr, flush=True)
        return level


def bench_stage1(arguments: Sequence[str]) -> None:
    """Print what was asked for."""
    options = _options(arguments)
    # Read by vLLM in each of its processes; their words are none of the figures.
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    print(f"{_SCRIPT}\n", flush=True)
    with tempfile.TemporaryDirectory(prefix="bench-stage1-") as folder:
        write_folder(Path(folder), PUBLISHED if options.machine == "h200" else {})
        asyncio.run(_bench(options, Path(folder)))


def _options(arguments: Sequence[str]) -> _Options:
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench stage1",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--machine", choices=tuple(MACHINES), default="cpu")
    parser.add_argument("--parts", default=",".join(PARTS), help="default: %(default)s")
    parser.add_argument("--sessions", help="default: 1,2 or 1,8,32,64")
    parser.add_argument("--first-call-codes", default="28,12", help="default: %(default)s")
    parser.add_argument("--seconds", type=int, default=12, help="of a level; default: 12")
    parser.add_argument("--limit-s", type=float, default=1e9, help="leave out what is too late")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="GROUP.FIELD=JSON",
        help="another value of a model setting of Stage1's, as voice.max_batch=32",
    )
    given = parser.parse_args(list(arguments))
    parts = tuple(given.parts.split(","))
    if unknown := sorted({*parts} - {*PARTS}):
        parser.error(f"there is no part {', '.join(unknown)}")
    return _Options(
        machine=given.machine,
        parts=parts,
        sessions=_numbers(given.sessions or ("1,8,32,64" if given.machine == "h200" else "1,2")),
        first_call_codes=_numbers(given.first_call_codes),
        seconds=given.seconds,
        limit_s=given.limit_s,
        changes=dict(_change(text) for text in given.set),
    )


def _change(text: str) -> tuple[str, Any]:
    name, value = text.split("=", 1)
    return name, json.loads(value)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(one) for one in text.split(","))


async def _bench(options: _Options, folder: Path) -> None:
    began_s = time.monotonic()
    stage0 = None
    if {*options.parts} - {"levels"}:
        # Both start at once: each takes its memory without looking at what is free.
        stage0 = Stage0Process(options.machine)
        stage0.start()
    try:
        rig = await start_voice_rig(rig_settings(options.machine, folder, options.changes))
        try:
            run = _Run(options, rig, began_s + options.limit_s, {}, stage0)
            await _parts(run)
        finally:
            await rig.stop()
    finally:
        if stage0 is not None:
            await asyncio.to_thread(stage0.stop)


async def _parts(run: _Run) -> None:
    rig, options = run.rig, run.options
    tts, voice, room = rig.config.tts, rig.settings.voice, rig.engine.capacity()
    print(
        f"{options.machine}: talker of {tts.num_hidden_layers} layers of {tts.hidden_size} in "
        f"{rig.settings.dtype}, flow in {voice.dtype} with {voice.steps} steps, batches of "
        f"{voice.max_batch}; ready after {rig.started_s:.0f} s; room for {room.max_sessions} "
        f"sessions and {room.kv_tokens} positions",
        flush=True,
    )
    if run.stage0 is not None:
        said = await run.stage0.ready(min(run.left_s, _STAGE0_WITHIN_S))
        print(f"Stage0 in its own process: {said}", flush=True)
    for part in options.parts:
        try:
            await _PARTS[part](run)
        except Exception as error:  # noqa: BLE001 - the other parts may still be had
            print(f"\n{part} failed: {error!r}", flush=True)


async def _levels(run: _Run) -> None:
    options = run.options
    print(f"\n{table_head(HEADER)}", flush=True)
    for codes in options.first_call_codes:
        for sessions in options.sessions:
            if not run.has_time(options.seconds + 8, f"{sessions} sessions, {codes} codes"):
                return
            level = await run.level(VoiceLoad(sessions, options.seconds, codes))
            if level.missed > len(level.all_units) // 3:
                print(f"more than {sessions} sessions: left out, a third was missed", flush=True)
                break


async def _beside(run: _Run) -> None:
    options, codes = run.options, run.options.first_call_codes[0]
    stage0_lines = [table_head(STAGE0_HEADER)]
    print(f"\nBeside Stage0 with as many sessions.\n\n{table_head(HEADER)}", flush=True)
    await run.model(codes)
    for sessions in options.sessions:
        if not run.has_time(2 * options.seconds + 16, f"{sessions} sessions beside Stage0"):
            break
        alone = await _stage0_level(run, sessions, options.seconds)
        stage0_lines.append(stage0_row("alone", alone))
        load = VoiceLoad(sessions, options.seconds, codes, "beside")
        # Stage0 goes on a little longer, so that Stage1 is never alone.
        meanwhile = partial(run.level, load)
        beside = await _stage0_level(run, sessions, options.seconds + 2, meanwhile)
        stage0_lines.append(stage0_row("beside Stage1", beside))
        print(f"  Stage0: {stage0_lines[-2]} {stage0_lines[-1]}", file=sys.stderr, flush=True)
    print("\n" + "\n".join(stage0_lines), flush=True)


async def _stage0_level(
    run: _Run,
    sessions: int,
    seconds: int,
    meanwhile: Callable[[], Awaitable[object]] | None = None,
) -> Measured:
    stage0 = _needed(run)
    stage0.send(RunLevel(level_load(sessions, _CONTEXT, seconds)))
    answer: Any = await stage0.answer(run.left_s)
    if isinstance(answer, Talking):
        if meanwhile is not None:
            await meanwhile()
        answer = await stage0.answer(run.left_s)
    if not isinstance(answer, LevelDone) or answer.measured is None:
        raise RuntimeError(f"Stage0's level failed: {getattr(answer, 'said', answer)}")
    return answer.measured


async def _together(run: _Run) -> None:
    stage0, options = _needed(run), run.options
    for codes in options.first_call_codes:
        print(f"\nFrom commit to sound; first call of {codes} codes.\n\n{table_head(_TALKS)}")
        model = await run.model(codes)
        stage0.received = Mouth(model, stage0.send).received
        for sessions in options.sessions:
            if not run.has_time(options.seconds + 12, f"{sessions} conversations, {codes} codes"):
                return
            stage0.send(RunTalks(sessions, options.seconds))
            done = await stage0.answer(run.left_s)
            print(talks_row(sessions, done), flush=True)
            for failure in done.failures:
                print(f"failed: {failure}", file=sys.stderr, flush=True)


def talks_row(sessions: int, done: TalksDone) -> str:
    """Return one level's line."""
    return table_row(
        (
            sessions,
            done.units,
            done.missed,
            spread(done.decided_ms, 50, 95, 99, 100),
            spread(done.first_ms, 50, 95, 99, 100),
            spread(done.later_first_ms, 50, 95, 99),
            spread(done.last_ms, 50, 95, 99, 100),
            spread(done.cancelled_ms, 50, 100, digits=1),
            spread(done.again_decided_ms, 50, 95, 100),
            spread(done.again_first_ms, 50, 95, 100),
            f"{len(done.first_ms)}, {len(done.cancelled_ms)}",
        )
    )


def _needed(run: _Run) -> Stage0Process:
    if run.stage0 is None:
        raise RuntimeError("Stage0's process was not started")
    return run.stage0


_PARTS: Final[Mapping[str, Callable[[_Run], Awaitable[None]]]] = {
    "levels": _levels,
    "beside": _beside,
    "together": _together,
}
