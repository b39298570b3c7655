import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from tools.running_service import free_port
from tools.start_service import PORT_TAKEN, is_taken, main, start


def test_a_port_that_another_process_serves_is_taken() -> None:
    with socket.socket() as other:
        # As Ray's proxy does, which lets a second one share the port.
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        assert is_taken("127.0.0.1", other.getsockname()[1])
    assert not is_taken("127.0.0.1", free_port())


def test_a_second_service_is_not_started_on_the_same_port(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        file = tmp_path / "duplex.yaml"
        file.write_text(f"http_options: {{host: 127.0.0.1, port: {port}}}\n")
        assert main([str(file)]) == PORT_TAKEN
    assert f"{port} is in use" in capsys.readouterr().out


def test_the_service_hears_a_sigint_that_its_starter_was_told_to_ignore() -> None:
    ask = "import signal, sys; sys.exit(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert start([sys.executable, "-c", ask], dict(os.environ)).wait() == 0
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
