"""`python -m clients.load`: N sessions that speak in real time, and what they measured.

Exit status: 0 at least one session ran to its end · 1 none did · 2 wrong usage ·
130 interrupted.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from clients.arguments import positive
from clients.connecting import API_KEY_VARIABLE, DEFAULT_URL
from clients.echo_bench import measure_echo
from clients.levels import SpeechSpan, speech_spans
from clients.load_plan import LoadPlan, SessionSamples
from clients.load_report import (
    LATE_MS,
    LoadReport,
    LoadSummary,
    echo_ratio,
    session_figures,
    summarize_load,
)
from clients.load_session import LoadSession
from clients.presets import AUTO, PRESET_NAMES, preset
from clients.provenance import provenance
from clients.stats import Summary
from clients.synthetic import bursts
from clients.wav import Recording, read_wav

COMPLETED: Final = 0
NONE_COMPLETED: Final = 1
USAGE: Final = 2

_PROGRESS_EVERY_S: Final = {True: 1.0, False: 10.0}
_OVERLOAD_SHARE: Final = 0.05
PAUSE_S: Final = 4.0
"""Silence between two times that a recording is said; else a turn would never end."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the load, print a summary and return the exit status."""
    arguments = build_parser().parse_args(argv)
    try:
        plan = _plan(arguments)
    except (OSError, ValueError) as error:
        print(f"load: {error}", file=sys.stderr)
        return USAGE
    made = provenance(sys.argv if argv is None else ["clients.load", *argv])
    echo = asyncio.run(measure_echo(plan, seconds=_echo_s(plan))) if arguments.echo else None
    before, begun_s = _cpu_s(), time.monotonic()
    samples = run_load(plan, processes=arguments.processes)
    wall_s = time.monotonic() - begun_s
    summary = summarize_load(samples)
    report = LoadReport(
        made=made,
        url=plan.url,
        preset=arguments.preset,
        audio="synthetic bursts" if arguments.input is None else str(arguments.input),
        sessions=plan.sessions,
        processes=arguments.processes,
        seconds=plan.seconds,
        ramp_s=plan.ramp_s,
        chunk_ms=plan.chunk_ms,
        commits=plan.commits,
        wall_s=round(wall_s, 3),
        generator_cpu_cores=round((_cpu_s() - before) / wall_s, 3),
        summary=summary,
        echo=echo,
        echo_ratio=None if echo is None else echo_ratio(summary, echo),
        per_session=tuple(session_figures(one) for one in samples),
    )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(report.as_json(), indent=2) + "\n", encoding="utf-8")
    print("\n".join(summary_lines(report)))
    return COMPLETED if summary.outcomes.get("completed") else NONE_COMPLETED


def build_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(prog="python -m clients.load", description=main.__doc__)
    parser.add_argument("--url", default=DEFAULT_URL, help="default: %(default)s")
    parser.add_argument("--sessions", type=positive, required=True, metavar="N")
    parser.add_argument(
        "--seconds", type=float, default=30.0, metavar="S", help="speech of each; %(default)s"
    )
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the whole report here")
    parser.add_argument("--preset", choices=PRESET_NAMES, default=AUTO, help="default: auto")
    parser.add_argument(
        "--in",
        dest="input",
        type=Path,
        metavar="FILE.wav",
        help=f"say this again and again, {PAUSE_S:g} s after each other",
    )
    parser.add_argument(
        "--ramp-s", type=float, default=2.0, help="start the sessions over this; %(default)s"
    )
    parser.add_argument(
        "--processes", type=positive, default=1, help="generator processes; %(default)s"
    )
    parser.add_argument("--chunk-ms", type=positive, default=200, help="default: %(default)s")
    parser.add_argument(
        "--commit", action="store_true", help="commit explicitly at each end of speech"
    )
    parser.add_argument(
        "--echo", action="store_true", help="measure a bare echo first and quote the ratio"
    )
    parser.add_argument(
        "--api-key",
        default=os.environ.get(API_KEY_VARIABLE),
        help=f"default: the environment's {API_KEY_VARIABLE}",
    )
    return parser


def run_load(plan: LoadPlan, *, processes: int = 1) -> list[SessionSamples]:
    """Run every session and return what each measured, in the order of their indexes."""
    if processes == 1:
        return asyncio.run(run_share(plan, range(plan.sessions), with_progress=True))
    shares = [range(first, plan.sessions, processes) for first in range(processes)]
    # spawn: a forked child would inherit this process's event loop and threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        running = [
            pool.submit(_run_share_here, plan, share, number == 0)
            for number, share in enumerate(shares)
        ]
        done = [samples for future in running for samples in future.result()]
    return sorted(done, key=lambda samples: samples.index)


async def run_share(
    plan: LoadPlan, indexes: Sequence[int], *, with_progress: bool
) -> list[SessionSamples]:
    """Run some of the sessions in this process."""
    progress = _Progress(of=len(indexes), begun_s=time.monotonic())
    sessions = [LoadSession(index, plan, tell=progress.tell) for index in indexes]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(session.run()) for session in sessions]
        if with_progress:
            reporting = group.create_task(progress.run())
            await asyncio.wait(tasks)
            reporting.cancel()
    return [task.result() for task in tasks]


def summary_lines(report: LoadReport) -> list[str]:
    """Return the figures that people look at first."""
    summary = report.summary
    late = f"{summary.late_sends} of {summary.appends} more than {LATE_MS:g} ms late"
    lines = [
        f"sessions          {_counts(summary.outcomes)}{_refused(summary)}",
        f"responses         {_counts(summary.responses)}; errors {_counts(summary.errors)}",
        f"connection        {_connection(summary)}",
        f"created → audio   {_figures(summary.response_created_to_first_audio_ms)}",
        f"speech end → audio {_figures(summary.speech_end_to_first_audio_ms)}",
        f"commit → audio    {_figures(summary.commit_to_first_audio_ms)}",
        f"chunk gap         {_figures(summary.inter_chunk_gap_ms)}",
        f"playback stalls   {_figures(summary.playback_stall_ms)}",
        f"heartbeat         {_figures(summary.heartbeat_rtt_ms)}",
        f"send lag          {_figures(summary.send_lag_ms)}; {late}",
        f"generator         {report.generator_cpu_cores:g} of {report.made.host_cores} cores",
    ]
    if report.echo is not None and report.echo_ratio is not None:
        lines.append(f"bare echo         {_figures(report.echo.heartbeat_rtt_ms)}")
        lines.append(f"ratio to echo     p50 {report.echo_ratio.p50}, p99 {report.echo_ratio.p99}")
    if summary.appends and not summary.responses:
        lines.append(
            "WARNING: nobody was answered, so there is nothing to measure; a model that "
            "understands words needs some, with an end within --seconds: "
            "--in tests/data/austen_0870.wav"
        )
    if summary.refusals:
        lines.append(
            "NOTE: sessions were refused; the deploy file's max_sessions is the limit, and a "
            "client that was cut off keeps its slot for disconnect_grace_s"
        )
    if summary.appends and summary.late_sends > _OVERLOAD_SHARE * summary.appends:
        lines.append(
            "WARNING: much was sent late, so these figures describe the generator or its machine "
            "as well as the service; use more --processes or another machine"
        )
    return lines


@dataclass(slots=True)
class _Progress:
    """Counts what sessions tell, and shows it now and then."""

    of: int
    begun_s: float
    counts: Counter[str] | None = None

    def tell(self, what: str) -> None:
        self.counts = self.counts if self.counts is not None else Counter()
        self.counts[what] += 1

    async def run(self) -> None:
        is_live = sys.stderr.isatty()
        while True:
            await asyncio.sleep(_PROGRESS_EVERY_S[is_live])
            print(self.line(), end="\r" if is_live else "\n", file=sys.stderr, flush=True)

    def line(self) -> str:
        counts = self.counts if self.counts is not None else Counter()
        ended = {name: counts[name] for name in ("completed", "refused", "unreachable", "failed")}
        running = counts["open"] - ended["completed"] - ended["failed"]
        return (
            f"{time.monotonic() - self.begun_s:6.1f} s  {running} of {self.of} running  "
            f"{counts['response']} responses  {_counts({k: n for k, n in ended.items() if n})}"
        )


def _run_share_here(
    plan: LoadPlan, indexes: Sequence[int], with_progress: bool
) -> list[SessionSamples]:
    return asyncio.run(run_share(plan, indexes, with_progress=with_progress))


def _plan(arguments: argparse.Namespace) -> LoadPlan:
    if arguments.input is None:
        recording, spans = bursts()
    else:
        recording, spans = said_with_pauses(read_wav(arguments.input))
    return LoadPlan(
        url=arguments.url,
        settings=preset(arguments.preset),
        recording=recording,
        spans=spans,
        sessions=arguments.sessions,
        seconds=arguments.seconds,
        ramp_s=arguments.ramp_s,
        chunk_ms=arguments.chunk_ms,
        commits=arguments.commit,
        api_key=arguments.api_key,
    )


def said_with_pauses(recording: Recording) -> tuple[Recording, tuple[SpeechSpan, ...]]:
    """Return a recording that can be said again and again, and where there is speech in it."""
    pause = bytes(2 * round(PAUSE_S * recording.rate_hz))
    return Recording(recording.pcm + pause, recording.rate_hz), tuple(speech_spans(recording))


def _echo_s(plan: LoadPlan) -> float:
    return min(plan.seconds, 10.0)


def _cpu_s() -> float:
    mine = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return mine.ru_utime + mine.ru_stime + children.ru_utime + children.ru_stime


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{n} {name}" for name, n in sorted(counts.items())) or "none"


def _refused(summary: LoadSummary) -> str:
    return f" ({_counts(summary.refusals)})" if summary.refusals else ""


def _connection(summary: LoadSummary) -> str:
    dropped = f"{summary.dropped_audio_ms / 1000:g} s of speech dropped"
    return f"{summary.resumes} resumes; {dropped}"


def _figures(summary: Summary) -> str:
    if summary.count == 0:
        return "none"
    return (
        f"p50 {summary.p50:g} ms, p95 {summary.p95:g} ms, max {summary.max:g} ms, n {summary.count}"
    )


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
