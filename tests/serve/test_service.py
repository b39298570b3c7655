"""The whole service on real Ray with the scripted model, seen through its sockets."""

import asyncio
import json
import os
import signal
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from serve_app.gateway.refusals import MOST_REFUSALS
from tests.fakes.wire import append, client, update
from tests.support.bad_input import BAD, MEBIBYTE
from tests.support.serve_cluster import UNHURRIED, ServeCluster
from tests.support.wire_order import ANSWER
from tools.running_service import is_ready

AUTO: dict[str, Any] = {"extra_body": {"auto_response": True}}
PATIENCE_S = 150.0
"""Only a test that has gone wrong ever waits so long."""


@pytest.fixture(scope="module")
def deployed(cluster: ServeCluster) -> Iterator[ServeCluster]:
    settings = {"sentences": 1, "speak_at_units": [1], "hang_at_units": [3], "chunk_delay_ms": 5}
    # Clients here hang up for good; tests/contract has those that come back.
    limits = {"max_sessions": 2, "disconnect_grace_s": 0, **UNHURRIED}
    cluster.deploy("scripted.yaml", {"model_settings": settings, "limits": limits})
    yield cluster
    cluster.delete()


@pytest.fixture
def service(deployed: ServeCluster) -> ServeCluster:
    deployed.until_free()
    return deployed


def dial(service: ServeCluster, **options: Any) -> connect:
    url = f"ws://{service.address}/v1/realtime?duplex=1"
    return connect(url, max_size=None, compression=None, **options)


async def hear(line: ClientConnection) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE_S):
        event: dict[str, Any] = json.loads(await line.recv())
    return event


async def until(line: ClientConnection, kind: str) -> list[dict[str, Any]]:
    read = [await hear(line)]
    while read[-1]["type"] != kind:
        read.append(await hear(line))
    return read


async def rest(line: ClientConnection) -> list[dict[str, Any]]:
    """Read what comes until the server closes."""
    read: list[dict[str, Any]] = []
    with suppress(ConnectionClosed):
        while True:
            read.append(await hear(line))
    return read


async def opened(line: ClientConnection) -> dict[str, Any]:
    await line.send(update(**AUTO))
    created, _ = await hear(line), await hear(line)
    assert created["type"] == "session.created", created
    return created


async def open_again(service: ServeCluster) -> list[str]:
    """Try until a session opens and answers, as a client would; return what it heard."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(ConnectionClosed, InvalidStatus, OSError, AssertionError):
                async with dial(service) as line:
                    await opened(line)
                    await line.send(append(1000))
                    return [e["type"] for e in await until(line, "rate_limits.updated")]
            await asyncio.sleep(0.5)


async def test_a_conversation_in_exact_order(service: ServeCluster) -> None:
    async with dial(service) as line:
        await opened(line)
        await line.send(append(1000))
        said = await until(line, "rate_limits.updated")
        assert [event["type"] for event in said] == ANSWER
        await line.send(client("session.close"))
        assert [e["type"] for e in await rest(line)] == ["session.closed"]
        assert (line.close_code, line.close_reason) == (1000, "client_close")


async def test_all_bad_input_gets_one_typed_error_each_and_the_session_lives(
    service: ServeCluster,
) -> None:
    async with dial(service) as line:
        await opened(line)
        for name, (frame, code) in BAD.items():
            await line.send(frame)
            await line.send(client("session.heartbeat"))
            error, beat = await hear(line), await hear(line)
            assert (error["type"], beat["type"]) == ("error", "session.heartbeat_ack"), name
            assert error["error"]["code"] == code, name
        await line.send(append(1000))
        assert [e["type"] for e in await until(line, "rate_limits.updated")] == ANSWER


async def test_a_frame_above_the_servers_limit_closes_one_socket_only(
    service: ServeCluster,
) -> None:
    async with dial(service) as healthy:
        await opened(healthy)
        async with dial(service) as line:
            await opened(line)
            with suppress(ConnectionClosed):
                await line.send(" " * (16 * MEBIBYTE + 1))
            await rest(line)
            assert line.close_code == 1009
        await healthy.send(append(1000))
        assert [e["type"] for e in await until(healthy, "rate_limits.updated")] == ANSWER
    assert await open_again(service) == ANSWER


async def test_a_socket_that_is_refused_on_and_on_is_closed_and_no_other(
    service: ServeCluster,
) -> None:
    async with dial(service) as healthy:
        await opened(healthy)
        async with dial(service) as line:
            await opened(line)
            hearing = asyncio.ensure_future(rest(line))
            with suppress(ConnectionClosed):
                for _ in range(2 * MOST_REFUSALS):
                    await line.send(client("no.such.event"))
            said = await hearing
            assert (line.close_code, line.close_reason) == (1008, "too_many_refusals")
            assert {event["type"] for event in said} == {"error"}
            assert MOST_REFUSALS < len(said) < 2 * MOST_REFUSALS
        await healthy.send(append(1000))
        assert [e["type"] for e in await until(healthy, "rate_limits.updated")] == ANSWER
    assert await open_again(service) == ANSWER


async def test_a_client_secret_comes_through_the_proxy_and_so_does_its_session(
    service: ServeCluster,
) -> None:
    body = json.dumps({"session": {"type": "realtime", "instructions": "Be brief."}}).encode()
    asked = urllib.request.Request(
        f"http://{service.address}/v1/realtime/client_secrets", data=body, method="POST"
    )
    with await asyncio.to_thread(urllib.request.urlopen, asked) as answer:
        value = json.load(answer)["value"]
    offer = ["realtime", f"openai-insecure-api-key.{value}"]
    async with dial(service, subprotocols=offer) as line:
        assert line.subprotocol == "realtime"
        assert (await opened(line))["session"]["instructions"] == "Be brief."
    with pytest.raises(InvalidStatus) as refused:
        await dial(service, subprotocols=["realtime", "openai-insecure-api-key.ek_unknown"])
    assert refused.value.response.status_code in {401, 403}


async def test_one_session_too_many_is_told_so_and_admitted_after_a_close(
    service: ServeCluster,
) -> None:
    async with dial(service) as one, dial(service) as two:
        await opened(one)
        await opened(two)
        async with dial(service) as three:
            await three.send(update(**AUTO))
            [error] = await rest(three)
            assert error["error"]["code"] == "resource_exhausted"
            assert three.close_code == 1013
        await one.send(client("session.close"))
        await until(one, "session.closed")
        async with dial(service) as three:
            await opened(three)


@pytest.mark.parametrize(
    ("stage", "victim"),
    [
        ("stage0", "Stage0Actor"),
        ("stage1", "Stage1Actor"),
        ("stage0", "ServeReplica:duplex:Stage0"),
    ],
)
async def test_a_dead_engine_ends_its_sessions_with_words_and_the_service_recovers(
    service: ServeCluster, stage: str, victim: str
) -> None:
    process = service.worker(victim)
    async with dial(service) as line:
        await opened(line)
        await line.send(append(1000))
        await until(line, "rate_limits.updated")
        await line.send(append(2000))  # the third unit hangs: a call is in flight
        await until(line, "response.listen")
        os.kill(process, signal.SIGKILL)
        told = await rest(line)
        assert [e["type"] for e in told if e["type"] != "response.listen"] == [
            "error",
            "session.expired",
        ]
        assert told[-1]["reason"] == f"{stage}_lost"
        assert line.close_code == 1011
    assert await open_again(service) == ANSWER


async def test_a_dead_witness_ends_its_sessions_and_is_replaced(service: ServeCluster) -> None:
    witness = service.worker("Witness")
    async with dial(service) as line:
        await opened(line)
        os.kill(witness, signal.SIGKILL)
        assert (await rest(line))[-1]["type"] == "session.expired"
    assert await open_again(service) == ANSWER


async def test_a_dead_gateway_frees_its_sessions(service: ServeCluster) -> None:
    gateway = service.worker("ServeReplica:duplex:Gateway")
    async with dial(service) as one, dial(service) as two:
        await opened(one)
        await opened(two)
        os.kill(gateway, signal.SIGKILL)
        await rest(one)
        await rest(two)
    # Both slots are free again, so two sessions fit side by side.
    first, second = await asyncio.gather(open_again(service), open_again(service))
    assert first == second == ANSWER


def test_health_and_models_say_what_runs(service: ServeCluster) -> None:
    while not is_ready(service.port):  # a stage that has not answered yet holds nobody up
        time.sleep(0.1)
    with urllib.request.urlopen(f"http://{service.address}/health") as answer:
        assert json.loads(answer.read())["status"] == "ok"
    with urllib.request.urlopen(f"http://{service.address}/v1/models") as answer:
        assert json.loads(answer.read())["data"][0]["id"] == "scripted"
    with urllib.request.urlopen(f"http://{service.address}/") as page:
        assert b"<html" in page.read().lower()
