"""The running service: how soon it is ready, how soon it answers, what its gateway costs."""

import asyncio
import json
import subprocess
import sys
import tempfile
import wave
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from session.config import RuntimeConfig
from session.ids import SessionId
from stages.contract import Speech
from stages.embedded.plugin import PLUGIN
from tools.running_service import ROOT, RunningService, running_command, running_service

SERVE_PORT: Final = 8000
"""The port of deploy/duplex.yaml, which `make serve` uses."""
SESSIONS: Final = (1, 8, 32)
SECONDS: Final = 20
PROXIES: Final[Mapping[str, Mapping[str, str]]] = {
    "default proxy": {},
    "HAProxy mode": {
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "1",
    },
}
QUESTIONS: Final = (
    "What is two plus three?",
    "Repeat after me, the weather is nice today.",
    "What is your name?",
    "What is the capital of France?",
)
TURNS: Final = 20
TURN_S: Final = 8


# --- ready ---------------------------------------------------------------------------------------


def bench_ready() -> None:
    """Time `make serve` in a clean clone: with no environment and no cache, and again."""
    print("| start | seconds to ready |\n| --- | --- |")
    with tempfile.TemporaryDirectory(prefix="ready-") as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        env = {"DUPLEX_CACHE": str(Path(folder) / "cache")}
        for name in ("cold", "warm"):
            with running_command(["make", "serve"], SERVE_PORT, env=env, cwd=clone) as service:
                print(f"| {name} | {service.ready_after_s:.1f} |", flush=True)


# --- turns ---------------------------------------------------------------------------------------


def bench_turns() -> None:
    """Ask spoken questions one after the other and time the answers."""
    with tempfile.TemporaryDirectory(prefix="turns-") as folder:
        recording = Path(folder) / "questions.wav"
        asyncio.run(_write_questions(recording))
        with running_service("duplex.yaml") as service:
            load = ["--sessions", "1", "--seconds", str(TURNS * TURN_S), "--preset", "embedded"]
            report = _load(service, [*load, "--in", str(recording)])
    latency = report["summary"]["speech_end_to_first_audio_ms"]
    print("| turns answered | p50 ms | p95 ms | max ms |\n| --- | --- | --- | --- |")
    figures = " | ".join(f"{latency[name]:.0f}" for name in ("p50", "p95", "max"))
    print(f"| {latency['count']} of {TURNS} | {figures} |")


async def _write_questions(file: Path) -> None:
    """Write a WAV of all turns, spoken by the packaged voice, each followed by silence."""
    voice = PLUGIN.make_stage1({})
    await voice.warm_up()
    speaker = SessionId("bench")
    await voice.open(speaker, RuntimeConfig())
    with wave.open(str(file), "wb") as out:
        out.setparams((1, 2, PLUGIN.descriptor.output_rate_hz, 0, "NONE", ""))
        for turn in range(TURNS):
            text = QUESTIONS[turn % len(QUESTIONS)]
            speech = Speech(text, segment_end=True, turn_end=True)
            pcm = b"".join([chunk.pcm async for chunk in voice.speak(speaker, speech)])
            # Not always the same place within the model's unit of one second.
            shift = turn * 47 % 1000 * PLUGIN.descriptor.output_rate_hz // 1000 * 2
            whole = TURN_S * PLUGIN.descriptor.output_rate_hz * 2
            out.writeframes((bytes(shift) + pcm).ljust(whole, b"\0")[:whole])


# --- gateway -------------------------------------------------------------------------------------


def bench_gateway() -> None:
    """Put scripted sessions on both proxies and compare with a bare echo in the same run."""
    header = "| proxy | sessions | frame in → append submitted p50 / p99 ms"
    header += " | chunk in → frame out p50 / p99 ms | heartbeat round trip p50 / p99 ms"
    print(f"{header} | bare echo p50 / p99 ms | ratio p50 / p99 | sends > 20 ms late |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for proxy, env in PROXIES.items():
        for sessions in SESSIONS:
            with running_service("scripted.yaml", {"gateway": {"debug": True}}, env) as service:
                report = _load(
                    service,
                    [
                        "--sessions",
                        str(sessions),
                        "--seconds",
                        str(SECONDS),
                        "--preset",
                        "scripted",
                        "--echo",
                    ],
                )
                timings = json.loads(service.get("/debug/timings"))
            print(_gateway_row(proxy, sessions, report, timings), flush=True)


def _gateway_row(
    proxy: str, sessions: int, report: dict[str, Any], timings: dict[str, dict[str, float]]
) -> str:
    summary, echo, ratio = report["summary"], report["echo"], report["echo_ratio"]
    inside = [
        f"{timings[name]['p50_ms']:.2f} / {timings[name]['p99_ms']:.2f}"
        for name in ("frame_to_append", "chunk_to_frame")
    ]
    trips = [
        f"{trip['p50']:.2f} / {trip['p99']:.2f}"
        for trip in (summary["heartbeat_rtt_ms"], echo["heartbeat_rtt_ms"])
    ]
    times = f"{ratio['p50']:.1f} / {ratio['p99']:.1f}"
    late = f"{summary['late_sends']} of {summary['appends']}"
    return f"| {proxy} | {sessions} | {' | '.join([*inside, *trips, times, late])} |"


def _load(service: RunningService, arguments: list[str]) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [sys.executable, "-m", "clients.load", "--url", service.socket_url]
        done = subprocess.run(
            [*command, *arguments, "--json", out.name],
            cwd=ROOT,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode != 0:
            raise RuntimeError(f"the load generator failed:\n{done.stdout[-4000:]}")
        report: dict[str, Any] = json.loads(Path(out.name).read_text())
        return report
