"""Runs the service of a deploy file and says when it answers: what `make serve` does last.

It refuses a port that is taken, because a second service would share it silently, starts
`serve run`, and prints the address once both stages answer.

Ctrl-C, or SIGTERM, first drains the service for a short time (STOP_WITHIN_S), because Ray ends
every process at once and would cut what is being said. A second one ends it at once.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tools.admin_key import first_key, service_key
from tools.drain import Door, Time, drain
from tools.running_service import is_ready

POLL_S: Final = 0.5
PORT_TAKEN: Final = 2
STOP_WITHIN_S: Final = 30.0
"""How long a person who stops the service waits for others to finish."""


def main(arguments: list[str]) -> int:
    """Start the service of a deploy file; return its exit status."""
    file = Path(arguments[0])
    tree = yaml.safe_load(file.read_text())
    http = tree.get("http_options", {})
    host, port = str(http.get("host", "127.0.0.1")), int(http.get("port", 8000))
    if is_taken(host, port):
        print(
            f"{file}: http_options.port: {port} is in use on {host}; end the other service, or "
            "give a copy of the file another port: make serve DEPLOY=FILE"
        )
        return PORT_TAKEN
    # Cancelled calls are normal here: an interruption refuses the unit it overtakes.
    # A busy machine needs longer than Serve's five seconds to bring its proxy up.
    env = {
        "RAY_IGNORE_UNHANDLED_ERRORS": "1",
        "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
        **os.environ,
    }
    command = [str(Path(sys.executable).parent / "serve"), "run", "--address", "local", str(file)]
    service = start(command, env)
    asked_to_stop = Asked()
    for signal_to_stop in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signal_to_stop, asked_to_stop.note)
    ended = threading.Event()
    watcher = threading.Thread(target=_announce, args=(port, ended), daemon=True)
    watcher.start()
    door = Door(f"http://127.0.0.1:{port}", admin_key(tree, env))
    status = run(service, asked_to_stop, door, float(env.get("STOP_WITHIN_S", STOP_WITHIN_S)))
    ended.set()
    return status


class Asked:
    """How often this process was asked to stop."""

    def __init__(self) -> None:
        self.times = 0

    def note(self, *_: object) -> None:
        """Count a signal."""
        self.times += 1


def run(service: subprocess.Popen[bytes], asked: Asked, door: Door, within_s: float) -> int:
    """Wait for the service; drain it when asked to stop, and end it then or when asked again."""
    while (status := _status(service)) is None and not asked.times:
        pass
    if status is not None:
        return status
    print(f"== draining for {within_s:g} s at most; Ctrl-C again ends the service now", flush=True)
    draining = threading.Thread(target=_drain, args=(door, within_s), daemon=True)
    draining.start()
    while draining.is_alive() and asked.times < 2 and _status(service) is None:
        pass
    if service.poll() is None:
        service.send_signal(signal.SIGINT)
    return service.wait()


def admin_key(tree: dict[str, Any], env: Mapping[str, str]) -> str | None:
    """Return an admin key of the service, where it has one."""
    args = tree.get("applications", [{}])[0].get("args") or {}
    file = (args.get("auth") or {}).get("admin_keys_file")
    return service_key(env) or (first_key(Path(file)) if file else None)


def _status(service: subprocess.Popen[bytes]) -> int | None:
    try:
        return service.wait(POLL_S)
    except subprocess.TimeoutExpired:
        return None


def _drain(door: Door, within_s: float) -> None:
    drain(door, within_s, Time(), lambda text: print(f"== {text}", flush=True))


def start(command: list[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start what SIGINT ends, even where that is ignored here: a shell's `&` does that.

    It has a process group of its own: Ctrl-C reaches this process alone, which drains first.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return subprocess.Popen(command, env=env, process_group=0)
    finally:
        signal.signal(signal.SIGINT, before)


def is_taken(host: str, port: int) -> bool:
    """Whether another process listens on the port; Ray's own proxy would not notice."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return True
        return False


def _announce(port: int, ended: threading.Event) -> None:
    while not ended.wait(POLL_S):
        if is_ready(port):
            print(f"== ready: open http://localhost:{port} and talk; Ctrl-C ends it", flush=True)
            return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
