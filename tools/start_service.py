"""Runs the service of a deploy file and says when it answers: what `make serve` does last.

It refuses a port that is taken, because a second service would share it silently, starts
`serve run`, and prints the address once both stages answer.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

import yaml

from tools.running_service import is_ready

POLL_S: Final = 0.5
PORT_TAKEN: Final = 2


def main(arguments: list[str]) -> int:
    """Start the service of a deploy file; return its exit status."""
    file = Path(arguments[0])
    http = yaml.safe_load(file.read_text()).get("http_options", {})
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
    # Ctrl-C reaches the service by itself; this process waits for it to clean up.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: service.send_signal(signal.SIGINT))
    ended = threading.Event()
    watcher = threading.Thread(target=_announce, args=(port, ended), daemon=True)
    watcher.start()
    status = service.wait()
    ended.set()
    return status


def start(command: list[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start what SIGINT ends, even where that is ignored here: a shell's `&` does that."""
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return subprocess.Popen(command, env=env)
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
