"""Keys and quotas of the running service: its key file changes, its clients leave and race."""

import asyncio
import json
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.fakes.wire import client, update
from tests.support.serve_cluster import UNHURRIED, ServeCluster

PATIENCE_S = 150.0
"""Only a test that has gone wrong ever waits so long."""
ALICE = "a-key name=alice max_sessions=1\n"
BOB = "b-key name=bob\n"


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys") / "api-keys"


@pytest.fixture(scope="module")
def deployed(cluster: ServeCluster, key_file: Path) -> Iterator[ServeCluster]:
    key_file.write_text(ALICE + BOB)
    limits = {
        "max_sessions": 4,
        "disconnect_grace_s": 0,
        "max_opens_per_key_per_minute": 1_000,
        **UNHURRIED,
    }
    cluster.deploy("scripted.yaml", {"auth": {"api_keys_file": str(key_file)}, "limits": limits})
    yield cluster
    cluster.delete()


@pytest.fixture
def service(deployed: ServeCluster) -> ServeCluster:
    deployed.until_free()
    return deployed


@pytest.fixture
def keys(service: ServeCluster, key_file: Path) -> Iterator[Path]:
    del service  # it has read the file
    yield key_file
    rotate(key_file, ALICE + BOB)


def rotate(file: Path, lines: str) -> None:
    """Put another file in the place of the one that there is."""
    fresh = file.with_suffix(".new")
    fresh.write_text(lines)
    fresh.rename(file)


def dial(service: ServeCluster, key: str, query: str = "duplex=1") -> connect:
    return connect(
        f"ws://{service.address}/v1/realtime?{query}",
        additional_headers={"Authorization": f"Bearer {key}"},
        compression=None,
    )


async def hear(line: ClientConnection) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE_S):
        event: dict[str, Any] = json.loads(await line.recv())
    return event


async def until(line: ClientConnection, kind: str) -> dict[str, Any]:
    while (event := await hear(line))["type"] != kind:
        pass
    return event


async def asked(line: ClientConnection) -> str:
    """Ask for a session; return `open`, or the code of the error that ended the socket."""
    await line.send(update())
    event = await hear(line)
    if event["type"] == "session.created":
        return "open"
    with suppress(ConnectionClosed):
        while True:
            await hear(line)
    assert line.close_code == 1013
    return str(event["error"]["code"])


def reset(line: ClientConnection) -> None:
    """Break the connection with a TCP reset."""
    plain = line.transport.get_extra_info("socket")
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line.transport.abort()


async def open_again(service: ServeCluster, key: str) -> ClientConnection:
    """Try until a session opens, as a client would."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            line = await dial(service, key)
            if await asked(line) == "open":
                return line


async def test_one_key_is_used_up_while_another_works_and_a_broken_socket_frees_its_place(
    service: ServeCluster, keys: Path
) -> None:
    del keys
    async with dial(service, "a-key") as first, dial(service, "a-key") as second:
        assert await asked(first) == "open"
        assert await asked(second) == "session_quota_exceeded"
        async with dial(service, "b-key") as other, dial(service, "b-key") as another:
            assert [await asked(other), await asked(another)] == ["open", "open"]
        reset(first)
        again = await open_again(service, "a-key")
        async with dial(service, "a-key") as third:
            assert await asked(third) == "session_quota_exceeded"
        await again.close()


async def test_of_two_that_race_for_the_last_place_one_gets_it(
    service: ServeCluster, keys: Path
) -> None:
    del keys
    before = await open_again(service, "a-key")
    await before.send(client("session.close"))
    await until(before, "session.closed")
    async with dial(service, "a-key") as one, dial(service, "a-key") as two:
        answers = await asyncio.gather(asked(one), asked(two))
        assert sorted(answers) == ["open", "session_quota_exceeded"]


async def test_a_key_is_replaced_while_its_session_goes_on(
    service: ServeCluster, keys: Path
) -> None:
    held = await open_again(service, "a-key")
    rotate(keys, BOB + "c-key name=alice max_sessions=1\n")
    with pytest.raises(InvalidStatus, match="401"):
        await dial(service, "a-key")
    async with dial(service, "c-key") as line:
        assert await asked(line) == "session_quota_exceeded"
    await held.send(client("session.heartbeat"))
    await until(held, "session.heartbeat_ack")
    rotate(keys, "d-key name=alice max_session=9\n")
    async with dial(service, "c-key") as line, dial(service, "b-key") as other:
        assert await asked(line) == "session_quota_exceeded", "a wrong file changes nothing"
        assert await asked(other) == "open"
    await held.close()
    await (await open_again(service, "c-key")).close()


async def test_a_stock_client_is_told_what_is_left(service: ServeCluster, keys: Path) -> None:
    del keys
    async with dial(service, "b-key", "model=m") as line:
        await until(line, "session.created")
        part = {"type": "input_text", "text": "Hello."}
        item = {"type": "message", "role": "user", "content": [part]}
        await line.send(client("conversation.item.create", item=item))
        await line.send(client("response.create"))
        [told] = (await until(line, "rate_limits.updated"))["rate_limits"]
        assert (told["name"], told["limit"]) == ("requests", 1_000)
        assert 0 < told["remaining"] < 1_000
