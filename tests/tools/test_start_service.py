import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from session.config import SessionLimits
from tests.fakes.server import hear, serving
from tests.fakes.stages import answering
from tests.fakes.wire import client, update
from tools.drain import Door
from tools.running_service import free_port
from tools.start_service import PORT_TAKEN, Asked, admin_key, is_taken, main, run, start


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


TEXT = client("input.text.append", text="Half a")
SLEEPS = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]
"""Stands for the service: it ends with a signal, and with nothing else."""


async def test_the_first_ctrl_c_drains_and_then_ends_the_service() -> None:
    asked = Asked()
    limits = SessionLimits()
    async with serving(answering(), limits=limits) as gateway, gateway.dial() as line:
        await line.send(update())
        await hear(line)
        service = start(SLEEPS, dict(os.environ))
        door = Door(f"http://127.0.0.1:{gateway.port}", None)
        running = asyncio.create_task(asyncio.to_thread(run, service, asked, door, 60.0))
        asked.note()
        await line.wait_closed()
        assert line.close_code == 1012
        assert await running != 0


async def test_the_second_ctrl_c_ends_it_at_once() -> None:
    asked = Asked()
    limits = SessionLimits()
    async with serving(answering(), limits=limits) as gateway, gateway.dial() as line:
        await line.send(update())
        await hear(line)
        await line.send(TEXT)  # an open item holds the session
        service = start(SLEEPS, dict(os.environ))
        door = Door(f"http://127.0.0.1:{gateway.port}", None)
        running = asyncio.create_task(asyncio.to_thread(run, service, asked, door, 60.0))
        asked.note()
        while (await hear(line))["type"] != "session.expiring":
            pass
        asked.note()
        assert await running != 0
        assert len(gateway.gateway.sessions) == 1
        await gateway.ask("DELETE", "/admin/drain")


def test_a_service_that_can_not_be_drained_is_ended_all_the_same() -> None:
    asked = Asked()
    service = start(SLEEPS, dict(os.environ))
    asked.note()
    assert run(service, asked, Door("http://127.0.0.1:9", None), 60.0) != 0


def test_a_service_that_ends_by_itself_is_not_waited_for() -> None:
    service = start([sys.executable, "-c", "raise SystemExit(3)"], dict(os.environ))
    assert run(service, Asked(), Door("http://127.0.0.1:9", None), 60.0) == 3


def test_the_admin_key_is_that_of_the_service(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("root\n")
    tree = {"applications": [{"args": {"auth": {"admin_keys_file": str(file)}}}]}
    assert admin_key(tree, {}) == "root"
    assert admin_key(tree, {"DUPLEX_ADMIN_KEYS": " first ,second"}) == "first"
    assert admin_key({"applications": [{}]}, {}) is None
