"""A drain on real Ray: two sessions finish what they say, a third does not come in, and back."""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.fakes.wire import append, client, update
from tests.support.serve_cluster import ServeCluster

pytestmark = pytest.mark.timeout(180)

PATIENCE_S = 60.0
AUTO: dict[str, Any] = {"extra_body": {"auto_response": True}}
DRAIN = "/admin/drain"


@pytest.fixture(scope="module")
def service(cluster: ServeCluster) -> Iterator[ServeCluster]:
    # Answers that are still being made when the drain is asked for.
    settings = {"sentences": 2, "speak_at_units": [1], "chunk_delay_ms": 300}
    limits = {"max_sessions": 2}
    cluster.deploy("scripted.yaml", {"model_settings": settings, "limits": limits})
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
    assert (await asyncio.to_thread(ask, service, "/health"))[0] == 200
