"""MiniCPM-o through the whole service: Ray Serve, both stages, the gateway, WebSocket clients.

On one GPU it runs `deploy/minicpmo_4_5.yaml` with the published sizes and random weights. On a CPU
it runs `deploy/minicpmo_tiny.yaml`: that shows that the program runs, and no figure of it means
anything.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tools.bench.stage0_folder import PUBLISHED, write_folder
from tools.bench.tables import spread, table_head, table_row
from tools.bench.talks_caller import Talks, Times, run_talks
from tools.running_service import ROOT, RunningService, running_service

FILES: Final = {"h200": "minicpmo_4_5.yaml", "cpu": "minicpmo_tiny.yaml"}
LEVELS: Final = {"h200": "1x18,8x18,32x18,32x90", "cpu": "1x24,2x24"}
HEADER: Final = (
    "sessions",
    "seconds",
    "units",
    "late, failed",
    "open p50 / max ms",
    "listen p50 / p99 ms",
    "last piece → created p50 / p95 / p99 / max ms",
    "last piece → first sound p50 / p95 / p99 / max ms",
    "later second → sound p50 / p95 / p99 / max ms",
    "cancel → done p50 / max ms",
    "cancel → next sound p50 / p95 / max ms",
    "stalls heard, longest ms",
    "sent late p99 ms",
    "clients' CPU",
    "GPU GB",
    "answers, cancels, silent",
)


def bench_talks(arguments: Sequence[str]) -> None:
    """Start the service, hold each level's conversations, and print what they measured."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench talks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--machine", choices=tuple(FILES), default="cpu")
    parser.add_argument("--levels", help="SESSIONSxSECONDS,...; default: a few")
    parser.add_argument("--limit-s", type=float, default=1e9, help="leave out what is too late")
    parser.add_argument("--log", type=Path, help="keep what the service prints here")
    parser.add_argument("--metrics", type=Path, help="write what /metrics says at the end here")
    given = parser.parse_args(list(arguments))
    until_s = time.monotonic() + given.limit_s
    levels = [
        (int(sessions), int(seconds))
        for sessions, _, seconds in (
            level.partition("x") for level in (given.levels or LEVELS[given.machine]).split(",")
        )
    ]
    with tempfile.TemporaryDirectory(prefix="bench-talks-") as folder:
        own = settings(given.machine, Path(folder))
        log = given.log or Path(folder) / "log"
        with (
            log.open("w+b") as written,
            running_service(FILES[given.machine], own, log=written) as service,
        ):
            print(f"{FILES[given.machine]}: ready after {service.ready_after_s:.0f} s\n")
            print(table_head(HEADER), flush=True)
            rows = [_level(service, *level) for level in levels if _has_time(until_s, level)]
            print("\nInside of the gateway, since its start:\n")
            print("```json\n" + json.dumps(_timings(service), indent=1) + "\n```", flush=True)
            if given.metrics is not None:
                given.metrics.write_bytes(service.get("/metrics"))
    for row in rows:
        for failure in row.failures[:3]:
            print(f"failed: {failure}", file=sys.stderr)


def settings(machine: str, folder: Path) -> Mapping[str, Mapping[str, Any]]:
    """Return what is changed in the deploy file: a folder without weights stands for the model."""
    own: dict[str, Mapping[str, Any]] = {"gateway": {"debug": True}}
    if machine == "cpu":
        own["model_settings"] = {"decoding": {"greedy": True}}
        return own
    write_folder(folder, PUBLISHED)
    tree = yaml.safe_load((ROOT / "deploy" / FILES[machine]).read_text(encoding="utf-8"))
    model = tree["applications"][0]["args"]["model_settings"]
    dummy = {"load_format": "dummy"}
    own["model_settings"] = {
        "checkpoint": str(folder),
        "language_model": {**model["language_model"], **dummy},
        "talker": {**model["talker"], **dummy},
        "voice": {**model["voice"], "prompt": None},
    }
    return own


def _has_time(until_s: float, level: tuple[int, int]) -> bool:
    sessions, seconds = level
    left_s = until_s - time.monotonic()
    if left_s >= seconds + 20 + 0.25 * sessions:
        return True
    print(f"{sessions} sessions, {seconds} s: left out, {left_s:.0f} s are left", flush=True)
    return False


def _level(service: RunningService, sessions: int, seconds: int) -> Times:
    memory = _Memory()
    began_s = time.monotonic()
    with memory:
        times = run_talks(Talks(service.socket_url, sessions, seconds))
    print(talks_row(sessions, seconds, times, memory.gb, time.monotonic() - began_s), flush=True)
    late = ", ".join(f"{at} s: {n}" for at, n in sorted(Counter(times.late_at_s).items()))
    print(f"late at {late or 'no second'}", file=sys.stderr, flush=True)
    return times


def talks_row(
    sessions: int, seconds: int, times: Times, gpu_gb: float | None, wall_s: float
) -> str:
    """Return one level's line."""
    stalls = f"{len(times.stall_ms)}, {max(times.stall_ms, default=0):.0f}"
    answers = len(times.first_ms) + len(times.again_ms)
    return table_row(
        (
            sessions,
            seconds,
            times.units,
            f"{len(times.late_at_s)}, {len(times.failures)}",
            spread(times.open_ms, 50, 100),
            spread(times.listen_ms, 50, 99),
            spread(times.created_ms, 50, 95, 99, 100),
            spread(times.first_ms, 50, 95, 99, 100),
            spread(times.later_ms, 50, 95, 99, 100),
            spread(times.cancelled_ms, 50, 100, digits=1),
            spread(times.again_ms, 50, 95, 100),
            stalls,
            spread(times.sent_late_ms, 99, digits=1),
            f"{100 * times.cpu_s / wall_s:.0f}%",
            "-" if gpu_gb is None else f"{gpu_gb:.1f}",
            f"{answers}, {len(times.cancelled_ms)}, {times.unforeseen}",
        )
    )


def _timings(service: RunningService) -> dict[str, Any]:
    timings: dict[str, Any] = json.loads(service.get("/debug/timings"))
    return timings


class _Memory:
    """The most that is in use on the GPU while this is open, by all processes; None without one."""

    def __init__(self) -> None:
        self.gb: float | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        while True:
            try:
                said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            except (OSError, subprocess.CalledProcessError):
                return
            self.gb = max(self.gb or 0.0, float(said.split()[0]) * 1024**2 / 1e9)
            if self._ended.wait(2.0):
                return
