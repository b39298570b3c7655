"""Starts the service from a deploy file, as an operator would, and stops it again."""

import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import yaml

ROOT = Path(__file__).parents[1]
READY_WITHIN_S = 600.0
STOP_WITHIN_S = 60.0
OURS = range(20_000, 32_000)
"""Below the ports that a system gives to connections by itself (Linux from 32768, macOS from
49152), one of which might take the port between the choice and its use."""


@dataclass(frozen=True, slots=True)
class RunningService:
    """A service that answers."""

    port: int
    ready_after_s: float

    @property
    def socket_url(self) -> str:
        """Where clients connect."""
        return f"ws://127.0.0.1:{self.port}/v1/realtime?duplex=1"

    def get(self, path: str) -> bytes:
        """Return the body of an HTTP GET."""
        return get(self.port, path)


@contextmanager
def running_service(
    deploy_file: str,
    args: Mapping[str, Mapping[str, Any]] | None = None,
    env: Mapping[str, str] | None = None,
    log: IO[bytes] | None = None,
) -> Iterator[RunningService]:
    """Run `serve run` on a copy of the deploy file with some `args` replaced, on a free port.

    Its output goes to `log`, a file that the caller closes, or to a file that is dropped.
    """
    port = free_port()
    tree = yaml.safe_load((ROOT / "deploy" / deploy_file).read_text())
    tree["http_options"]["port"] = port
    own = tree["applications"][0].setdefault("args", {})
    for name, changes in (args or {}).items():
        own[name] = {**own.get(name, {}), **changes}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        file = Path(folder) / deploy_file
        file.write_text(yaml.safe_dump(tree))
        # By module: where packages were only unpacked there is no `serve` beside Python.
        command = [sys.executable, "-m", "ray.serve.scripts", "run", "--address", "local"]
        with running_command([*command, str(file)], port, env=env or {}, log=log) as service:
            yield service


@contextmanager
def running_command(
    command: list[str],
    port: int,
    *,
    env: Mapping[str, str],
    cwd: Path = ROOT,
    log: IO[bytes] | None = None,
) -> Iterator[RunningService]:
    """Run a command that serves on `port`; wait until it is ready; interrupt it at the end."""
    own_log = tempfile.TemporaryFile()  # noqa: SIM115 - closed below, after the process has ended
    output = own_log if log is None else log
    started_s = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0", **env},
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        while not is_ready(port):
            waited_s = time.monotonic() - started_s
            if process.poll() is not None or waited_s > READY_WITHIN_S:
                output.seek(0)
                tail = output.read()[-4000:].decode(errors="replace")
                raise RuntimeError(f"not ready after {waited_s:.0f} s:\n{tail}")
            time.sleep(0.1)
        yield RunningService(port, time.monotonic() - started_s)
    finally:
        with suppress(ProcessLookupError):  # one that ended by itself has been told of above
            os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        own_log.close()


def is_ready(port: int) -> bool:
    """Whether both stages answer through the service on `port`."""
    try:
        get(port, "/health")
    except (urllib.error.URLError, OSError):
        return False
    return True


def get(port: int, path: str) -> bytes:
    """Return the body of an HTTP GET on this machine."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        body: bytes = answer.read()
        return body


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on, and nobody gets by chance."""
    while True:
        port = random.choice(OURS)
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
