"""A drain on real Ray: two sessions finish what they say, a third does not come in, and back."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.fakes.wire import append, client, update
from tests.support.serve_cluster import ENVIRONMENT, ROOT, UNHURRIED, ServeCluster
from tools.running_service import free_port, is_ready

PATIENCE_S = 120.0
AUTO: dict[str, Any] = {"extra_body": {"auto_response": True}}
DRAIN = "/admin/drain"
SLOW = {"sentences": 2, "speak_at_units": [1], "chunk_delay_ms": 300}
"""Answers that are still being made when the drain is asked for."""


@pytest.fixture(scope="module")
def service(cluster: ServeCluster) -> Iterator[ServeCluster]:
    cluster.deploy(
        "scripted.yaml", {"model_settings": SLOW, "limits": {"max_sessions": 2, **UNHURRIED}}
    )
    yield cluster
    cluster.delete()


def ask(service: ServeCluster, path: str, method: str = "GET") -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(f"http://{service.address}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def dial(service: ServeCluster, query: str = "duplex=1") -> connect:
    return connect(f"ws://{service.address}/v1/realtime?{query}", max_size=None, compression=None)


async def hear(line: ClientConnection) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE_S):
        event: dict[str, Any] = json.loads(await line.recv())
    return event


async def rest(line: ClientConnection) -> list[dict[str, Any]]:
    read: list[dict[str, Any]] = []
    try:
        while True:
            read.append(await hear(line))
    except ConnectionClosed:
        return read


async def speaking(line: ClientConnection) -> None:
    """Bring a session to the middle of an answer."""
    await line.send(update(**AUTO))
    await line.send(append(1000))
    while (await hear(line))["type"] != "response.speak":
        pass


async def state(service: ServeCluster, wanted: str) -> dict[str, Any]:
    """Ask until the drain is so far."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            _, told = await asyncio.to_thread(ask, service, DRAIN)
            if told["state"] == wanted:
                return told
            await asyncio.sleep(0.1)


async def test_two_answers_are_heard_a_third_client_is_refused_and_it_can_be_taken_back(
    service: ServeCluster,
) -> None:
    async with dial(service) as one, dial(service) as two:
        await asyncio.gather(speaking(one), speaking(two))
        status, told = await asyncio.to_thread(ask, service, DRAIN, "POST")
        assert (status, told["state"], told["sessions"]["active"]) == (200, "draining", 2)
        assert told["replica"]
        assert told["node"] not in ("", "127.0.0.1")
        with pytest.raises(InvalidStatus) as refused:
            await dial(service, "model=m")
        assert refused.value.response.status_code == 503
        health, said = await asyncio.to_thread(ask, service, "/health")
        assert (health, said["status"]) == (503, "draining")
        for line, heard in zip((one, two), await asyncio.gather(rest(one), rest(two)), strict=True):
            [done] = [event for event in heard if event["type"] == "response.done"]
            assert done["response"]["status"] == "completed"
            assert [e["reason"] for e in heard if e["type"] == "session.expiring"] == [
                "server_drain"
            ]
            assert (line.close_code, line.close_reason) == (1012, "server_drain")
    drained = await state(service, "drained")
    assert (sum(drained["sessions"].values()), drained["sockets"]) == (0, 0)
    status, back = await asyncio.to_thread(ask, service, DRAIN, "DELETE")
    assert (status, back["state"], back["replica"]) == (200, "serving", told["replica"])
    async with dial(service) as line:
        await speaking(line)
        await line.send(client("session.close"))
        await rest(line)
        assert line.close_code == 1000
    while (await asyncio.to_thread(ask, service, "/health"))[0] != 200:  # noqa: ASYNC110
        await asyncio.sleep(0.1)  # a stage that has not answered yet holds nobody up


def started(file: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start the service of a deploy file as `make serve` does."""
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "tools.start_service", str(file)],
            cwd=ROOT,
            env={**os.environ, **ENVIRONMENT},
            stdout=output,
            stderr=subprocess.STDOUT,
        )


async def test_ctrl_c_of_make_serve_lets_an_answer_come_to_its_end(tmp_path: Path) -> None:
    tree = yaml.safe_load((ROOT / "deploy" / "scripted.yaml").read_text())
    port = tree["http_options"]["port"] = free_port()
    tree["applications"][0]["args"]["model_settings"] = SLOW
    file = tmp_path / "scripted.yaml"
    file.write_text(yaml.safe_dump(tree))
    service = started(file, tmp_path / "log")
    try:
        while not await asyncio.to_thread(is_ready, port):
            assert service.poll() is None, (tmp_path / "log").read_text()
            await asyncio.sleep(0.2)
        url = f"ws://127.0.0.1:{port}/v1/realtime?duplex=1"
        async with connect(url, max_size=None, compression=None) as line:
            await speaking(line)
            service.send_signal(signal.SIGINT)
            [done] = [e for e in await rest(line) if e["type"] == "response.done"]
            assert done["response"]["status"] == "completed"
            assert (line.close_code, line.close_reason) == (1012, "server_drain")
        assert await asyncio.to_thread(service.wait, PATIENCE_S) == 0
        assert "== drained: nothing is left" in (tmp_path / "log").read_text()
    finally:
        service.send_signal(signal.SIGINT)  # the second one ends it at once
        service.wait()
