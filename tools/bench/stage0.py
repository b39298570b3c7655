"""Stage0 of MiniCPM-o in real time, by number of sessions, and what its parts cost.

It runs on a CPU with the tiny checkpoint's sizes (ratios mean something, absolute figures do not)
and on one GPU with the published sizes. The weights are random in both.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from stages.minicpmo.stage0 import MiniCPMOStage0
from tools.bench.stage0_folder import PUBLISHED, SMALL, write_folder
from tools.bench.stage0_levels import Crowd, Load, Measured
from tools.bench.stage0_parts import (
    Floor,
    interruptions,
    measured_floor,
    rebuilds_ms,
)
from tools.bench.stage0_rig import MACHINES, Rig, bench_settings, start_rig
from tools.bench.stage0_tables import HEADER, Notes, level_row
from tools.bench.tables import spread, table_head, table_row

T = TypeVar("T")

SIZES: Final = {"published": PUBLISHED, "small": SMALL}
PARTS: Final = ("floor", "levels", "tap", "abort", "rebuild", "window")
_REBUILT: Final = (1000, 4000)
_SHORT: Final = 300
_LONG_S: Final = 120
_IN_FRONT_S: Final = 1.0
_WINDOW_UNITS: Final = 24
_BEFORE_IT_SLIDES_S: Final = 3
_OTHERS: Final = ("others' speak p50 / p99 ms", "others missed")
_SCRIPT: Final = (
    "Random weights, so the policy's own decisions mean nothing. Which units speak is scripted: in "
    "turns of three, half of all sessions at a time, units listen by force or are free to speak; a "
    "free one has 20 steps (19 tokens fed) unless chance ends it early, which the last column "
    "counts. The first forced listen after speaking also feeds the turn's end. Each session sends "
    "a second of noise each second, its phase its own; it has heard 20 s of it before, and said "
    "512 tokens, as far as the policy looks back. Times of units are from when they were due to "
    "their answer, encoder included; missed: later than 1 s."
)


@dataclass(frozen=True, slots=True)
class _Options:
    machine: str
    sizes: str
    parts: tuple[str, ...]
    sessions: tuple[int, ...]
    contexts: tuple[int, ...]
    seconds: int
    limit_s: float
    notes: Path | None


@dataclass(slots=True)
class _Run:
    """One run of the benchmark on one engine."""

    options: _Options
    rig: Rig
    model: MiniCPMOStage0
    notes: Notes
    until_s: float
    floor: Floor | None = None

    @property
    def most(self) -> int:
        """Return the largest number of sessions that was asked for."""
        return max(self.options.sessions)

    def has_time(self, seconds: float, what: str) -> bool:
        """Say whether there is so much left, and print it if not."""
        left_s = self.until_s - time.perf_counter()
        if left_s < seconds:
            print(f"\n{what}: left out, {left_s:.0f} s are left", flush=True)
        return left_s >= seconds

    async def level(self, model: MiniCPMOStage0, load: Load) -> Measured:
        """Run a level and print its line."""
        level = await Crowd(self.rig, model, load).measured()
        print(level_row(level, None if self.floor is None else self.floor.ms), flush=True)
        for failure in sorted({one.failure for one in level.units if one.failure})[:3]:
            print(f"failed: {failure}", file=sys.stderr, flush=True)
        self.notes.add_level(level)
        return level


def bench_stage0(arguments: Sequence[str]) -> None:
    """Print what was asked for."""
    options = _options(arguments)
    # Read by vLLM in each of its processes; their words are none of the figures.
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    print(f"{_SCRIPT}\n", flush=True)
    with tempfile.TemporaryDirectory(prefix="bench-stage0-") as folder:
        write_folder(Path(folder), SIZES[options.sizes])
        asyncio.run(_bench(options, Path(folder)))


def _options(arguments: Sequence[str]) -> _Options:
    parser = argparse.ArgumentParser(prog="python -m tools.bench stage0", description=__doc__)
    parser.add_argument("--machine", choices=tuple(MACHINES), default="cpu")
    parser.add_argument("--sizes", choices=tuple(SIZES), help="default: the machine's")
    parser.add_argument("--parts", default=",".join(PARTS), help="default: %(default)s")
    parser.add_argument("--sessions", help="default: 1,2,4,8 or 1,8,32,64,128")
    parser.add_argument("--contexts", help="positions; default: 300 or 300,4000")
    parser.add_argument("--seconds", type=int, default=8, help="of a level; default: 8")
    parser.add_argument("--limit-s", type=float, default=1e9, help="leave out what is too late")
    parser.add_argument("--notes", type=Path, help="a file for lines of JSON")
    given = parser.parse_args(list(arguments))
    is_gpu = given.machine == "h200"
    parts = tuple(given.parts.split(","))
    if unknown := sorted({*parts} - {*PARTS}):
        parser.error(f"there is no part {', '.join(unknown)}")
    return _Options(
        machine=given.machine,
        sizes=given.sizes or ("published" if is_gpu else "small"),
        parts=parts,
        sessions=_numbers(given.sessions or ("1,8,32,64,128" if is_gpu else "1,2,4,8")),
        contexts=_numbers(given.contexts or ("300,4000" if is_gpu else "300")),
        seconds=given.seconds,
        limit_s=given.limit_s,
        notes=given.notes,
    )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(one) for one in text.split(","))


async def _bench(options: _Options, folder: Path) -> None:
    began = time.perf_counter()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    rig = await start_rig(bench_settings(options.machine, folder), folder)
    try:
        run = _Run(
            options=options,
            rig=rig,
            model=await rig.front(),
            notes=Notes(options.notes),
            until_s=began + options.limit_s,
        )
        llm = rig.config.llm
        room = rig.engine.capacity()
        print(
            f"{options.machine}: hidden {llm.hidden_size}, {llm.num_hidden_layers} layers, "
            f"{rig.settings.dtype}; ready after {rig.started_s:.0f} s; room for "
            f"{room.max_sessions} sessions and {room.kv_tokens} positions\n",
            flush=True,
        )
        for part in options.parts:
            try:
                await _PARTS[part](run)
            except Exception as error:  # noqa: BLE001 - the other parts may still be had
                print(f"\n{part} failed: {error!r}", flush=True)
        print(f"\nWorker's tables at the end: {await rig.worker('tap_sizes')}", flush=True)
        print(f"Units dropped by the tap: {rig.tap.dropped}, unreadable: {rig.tap.unreadable}")
    finally:
        await rig.stop()


async def _floor(run: _Run) -> None:
    run.floor = floor = await asyncio.to_thread(measured_floor, run.rig)
    print(
        f"Copy {floor.copied_bytes_per_s / 1e9:.0f} GB/s (read and written); a token reads "
        f"{floor.weight_bytes / 1e9:.2f} GB of weights (KV not counted): floor of TPOT "
        f"{floor.ms:.2f} ms\n",
        flush=True,
    )
    run.notes.add("floor", {"bytes_per_s": floor.copied_bytes_per_s, "ms": floor.ms})


async def _levels(run: _Run) -> None:
    print(table_head(HEADER))
    options = run.options
    for context in options.contexts:
        for sessions in options.sessions:
            if context != options.contexts[0] and 1 < sessions < run.most // 2:
                continue  # the short context says how it grows in between
            needed_s = options.seconds + 5 + sessions * context / 20_000
            if not run.has_time(needed_s, f"{sessions} sessions at {context}"):
                continue
            level = await run.level(run.model, Load(sessions, context, options.seconds))
            if level.missed > len(level.units) // 3:
                print(f"more than {sessions} sessions: left out, a third was missed")
                break


async def _tap(run: _Run) -> None:
    """Compare whole hidden rows on the tap with a number in place of each."""
    rows_bytes = run.rig.config.llm.hidden_size * (4 if run.rig.settings.dtype == "float32" else 2)
    print(f"\nThe tap; a unit of 20 rows takes {20 * rows_bytes} bytes.\n\n{table_head(HEADER)}")
    sizes = {max(1, run.most // 2), run.most}
    for sessions in sorted(sizes):
        for is_on in (True, False, True):
            if not run.has_time(run.options.seconds + 6, f"the tap at {sessions}"):
                return
            await run.rig.worker("bench_rows", is_on)
            try:
                name = "with hidden rows" if is_on else "without"
                load = Load(sessions, _SHORT, run.options.seconds, name)
                await run.level(run.model, load)
            finally:
                await run.rig.worker("bench_rows", True)


async def _abort(run: _Run) -> None:
    print("\nAn interruption in the middle of a unit that speaks.\n")
    print(
        table_head(
            (
                "others",
                "context",
                "cancel p50 / max ms",
                "interrupt besides p50 / max ms",
                "next unit answered p50 / max ms",
                "interrupted, of 12",
                *_OTHERS,
            )
        )
    )
    for others in (0, max(1, run.most // 4)):
        for context in run.options.contexts:
            if not run.has_time(20, f"interruptions at {others} and {context}"):
                return
            work = partial(interruptions, run.rig, run.model, Load(1, context, 1), times=12)
            found, fared = await _beside(run, others, work)
            times = (found.cancel_ms, found.interrupt_ms, found.answered_ms)
            cells = [spread(one, 50, 100, digits=1) for one in times]
            counted = len(found.cancel_ms)
            print(table_row((others, context, *cells, counted, *fared)), flush=True)
            values = dict(zip(("cancel_ms", "interrupt_ms", "answered_ms"), times, strict=True))
            run.notes.add("abort", {"others": others, "context": context, **values})


async def _rebuild(run: _Run) -> None:
    print("\nA session's memory computed anew, of units that listened.\n")
    print(table_head(("others", "positions", "p50 / max ms", *_OTHERS)))
    for others in (0, max(1, run.most // 2)):
        for positions in _REBUILT:
            if not run.has_time(20, f"rebuilds at {others} and {positions}"):
                return
            work = partial(rebuilds_ms, run.rig, positions, times=8, pause_s=0.3)
            took_ms, fared = await _beside(run, others, work)
            cells = (others, positions, spread(took_ms, 50, 100, digits=1), *fared)
            print(table_row(cells), flush=True)
            run.notes.add("rebuild", {"others": others, "positions": positions, "ms": took_ms})


async def _beside(
    run: _Run, others: int, work: Callable[[], Awaitable[T]]
) -> tuple[T, tuple[str, str]]:
    """Do something while other sessions talk; return what came of it and how those fared."""
    if not others:
        return await work(), ("-", "-")
    load = Load(others, _SHORT, _LONG_S, "beside", first_session=others)
    crowd = Crowd(run.rig, run.model, load)
    level = asyncio.ensure_future(crowd.measured())
    began = asyncio.ensure_future(crowd.talking.wait())
    await asyncio.wait({level, began}, return_when=asyncio.FIRST_COMPLETED)
    try:
        if not level.done():
            await asyncio.sleep(_IN_FRONT_S)
        result = await work()
    finally:
        began.cancel()
        crowd.stop()
        await asyncio.wait({level})
    measured = level.result()
    run.notes.add_level(measured)
    missed = f"{measured.missed} of {len(measured.units)}"
    return result, (spread(measured.done_ms(speaks=True), 50, 99), missed)


async def _window(run: _Run) -> None:
    print(
        "\nThe context window of 24 units, full. *Each second*: without slack each unit drops one, "
        "and a rebuild follows it. *With slack*: each session drops 12 to 24 units at a time, as "
        "the default is; all began in the same second.\n"
    )
    print(table_head(HEADER))
    for name, slack in (("each second", 0), ("with slack", _WINDOW_UNITS)):
        model = await run.rig.front(run.rig.context_window(slack))
        heard_s = _WINDOW_UNITS + slack - (_BEFORE_IT_SLIDES_S if slack else 0)
        for sessions in run.options.sessions:
            if not run.has_time(run.options.seconds + 10, f"the window at {sessions}"):
                return
            load = Load(sessions, _SHORT, run.options.seconds, name, heard_s=heard_s)
            level = await run.level(model, load)
            if level.missed > len(level.units) // 3:
                break


_PARTS: Final[Mapping[str, Callable[[_Run], Awaitable[None]]]] = {
    "floor": _floor,
    "levels": _levels,
    "tap": _tap,
    "abort": _abort,
    "rebuild": _rebuild,
    "window": _window,
}
