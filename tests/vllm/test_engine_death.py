"""The engine's end and its owner's, by signals that nobody can catch."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.vllm

REPOSITORY = Path(__file__).parents[2]
DEAD = "EngineDied"
GONE_S = 60.0
"""Far more than a process needs to end; the test fails only if one does not."""


class Owner:
    """A process that owns an engine."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def read(self) -> dict[str, Any]:
        """Return the next line of facts; other lines are vLLM's."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                facts: dict[str, Any] = json.loads(line)
                return facts
        raise AssertionError("the owner ended without a word")

    def go_on(self) -> None:
        """Let it stop its engine."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()


@contextmanager
def owner(folder: Path, stuck_after_s: float) -> Iterator[Owner]:
    """Run an owner until its sessions are busy."""
    command = [sys.executable, "-m", "tests.support.engine_owner", str(folder), str(stuck_after_s)]
    process = subprocess.Popen(
        command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    mine: list[int] = []
    try:
        running = Owner(process)
        assert running.read() == {"busy": True}
        mine = descendants(process.pid)
        yield running
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        for pid in mine:
            if is_vllm(pid):
                os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """Return the children of a process, their children and so on."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        children.setdefault(int(fields[1]), []).append(int(folder.name))
    found = list(children.get(pid, ()))
    for child in found:
        found.extend(children.get(child, ()))
    return found


def title(pid: int) -> str:
    """Return what a process calls itself; nothing if it is gone or a zombie."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def is_vllm(pid: int) -> bool:
    return "VLLM::" in title(pid)


def vllm_processes(running: Owner) -> tuple[list[int], list[int]]:
    """Return the pids of EngineCore and of the workers."""
    pids = [pid for pid in descendants(running.process.pid) if is_vllm(pid)]
    cores = [pid for pid in pids if "EngineCore" in title(pid)]
    workers = [pid for pid in pids if pid not in cores]
    assert len(cores) == 1, [title(pid) for pid in pids]
    assert workers, "on a CPU the worker is a process of its own"
    return cores, workers


def wait_until(holds: Callable[[], bool], what: str) -> None:
    end_s = time.monotonic() + GONE_S
    while not holds():
        assert time.monotonic() < end_s, what
        time.sleep(0.05)


def test_a_stuck_engine_is_told_and_a_killed_owner_takes_it_along(tiny_folder: Path) -> None:
    with owner(tiny_folder, stuck_after_s=6.0) as running:
        cores, workers = vllm_processes(running)
        for pid in cores:
            os.kill(pid, signal.SIGSTOP)
        facts = running.read()
        assert "stuck" in facts["died"]
        assert facts["errors"] == [DEAD] * 3
        assert facts["later"] == [DEAD] * 4
        for pid in cores:
            os.kill(pid, signal.SIGCONT)
        running.process.kill()
        wait_until(
            lambda: not any(is_vllm(pid) for pid in (*cores, *workers)),
            "EngineCore or a worker outlives its owner",
        )


@pytest.mark.parametrize("victim", ["core", "worker"])
def test_a_killed_engine_is_told_at_once(tiny_folder: Path, victim: str) -> None:
    with owner(tiny_folder, stuck_after_s=600.0) as running:
        cores, workers = vllm_processes(running)
        os.kill((cores if victim == "core" else workers)[0], signal.SIGKILL)
        facts = running.read()
        assert "stuck" not in facts["died"]
        assert facts["errors"] == [DEAD] * 3
        assert facts["later"] == [DEAD] * 4
        running.go_on()
        assert running.read() == {"open_sessions": 0}
        assert running.process.wait() == 0
        wait_until(
            lambda: not any(is_vllm(pid) for pid in (*cores, *workers)),
            "a process of the engine outlives its stop",
        )
