"""Quotas over real sockets, on every wire: who is refused, with which words, and who is not."""

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from serve_app.gateway.secret_routes import SECRETS_PATH
from serve_app.metrics.definitions import DOOR_REFUSALS, SESSIONS_REFUSED
from session.config import SessionLimits
from session.errors import StageFailed
from tests.fakes.server import WAIT_S, Service, hear, serving, until
from tests.fakes.stages import ScriptedDirectory
from tests.fakes.wire import client, update

TOO_MANY_SESSIONS = ("rate_limit_error", "session_quota_exceeded")
TOO_MANY_OPENS = ("rate_limit_error", "rate_limit_exceeded")
KEYS = "a-key name=alice max_sessions=1 max_opens_per_minute=none\nb-key name=bob\n"


@dataclass(frozen=True)
class Wire:
    """How a client of one dialect opens a session."""

    path: str
    first: str
    opened: str
    greets: bool = False


WIRES = {
    "duplex": Wire("/v1/realtime?duplex=1", update(), "session.created"),
    "duplex_ga": Wire("/v1/realtime?duplex=1&dialect=ga", update(), "session.created"),
    "internal": Wire("/v1/duplex", update(), "session.created"),
    "openai": Wire(
        "/v1/realtime?model=m",
        client("session.update", session={"type": "realtime"}),
        "session.updated",
        greets=True,
    ),
    "live": Wire(
        "/v1/live/sessions", client("session.start", session={"model": "m"}), "session.started"
    ),
}
DUPLEX = WIRES["duplex"]
every_wire = pytest.mark.parametrize("wire", WIRES.values(), ids=list(WIRES))


@dataclass
class Place:
    """A running gateway with a file of keys."""

    service: Service
    file: Path
    stack: AsyncExitStack

    @property
    def asked(self) -> int:
        """How often the stages were asked for a place."""
        return self.service.directory.knobs.names().count("open")

    def rotate(self, keys: str) -> None:
        """Put another file in the place of the one that there is."""
        fresh = self.file.with_suffix(".new")
        fresh.write_text(keys)
        fresh.rename(self.file)

    async def dial(self, wire: Wire, key: str | None) -> ClientConnection:
        """Open a socket."""
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        line = await self.stack.enter_async_context(
            connect(
                f"ws://127.0.0.1:{self.service.port}{wire.path}",
                additional_headers=headers,
                compression=None,
            )
        )
        if wire.greets:
            assert (await hear(line))["type"] == "session.created"
        return line

    async def open(self, wire: Wire, key: str | None) -> ClientConnection:
        """Open a socket and a session on it."""
        line = await self.dial(wire, key)
        await line.send(wire.first)
        await until(line, wire.opened)
        return line

    async def refusal(self, wire: Wire, key: str | None) -> tuple[str, str]:
        """Try to open a session; return type and code of the error, after which the socket ends."""
        line = await self.dial(wire, key)
        await line.send(wire.first)
        event = await hear(line)
        assert event["type"] == "error", event
        assert "try again" in event["error"]["message"]
        assert await closing(line) == 1013
        return event["error"]["type"], event["error"]["code"]

    async def without(self, line: ClientConnection) -> None:
        """Break a connection with a TCP reset, and wait until its session is over."""
        before = len(self.service.gateway.sessions)
        plain = line.transport.get_extra_info("socket")
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        line.transport.abort()
        await self.service.until_open(before - 1)


@asynccontextmanager
async def keyed(
    tmp_path: Path,
    keys: str = KEYS,
    *,
    slots: int = 4,
    directory: ScriptedDirectory | None = None,
    **limits: Any,
) -> AsyncIterator[Place]:
    """Run a gateway whose keys are in a file."""
    file = tmp_path / "keys"
    file.write_text(keys)
    bounds = SessionLimits(**{"disconnect_grace_s": 0, **limits})
    stages = directory or ScriptedDirectory(max_sessions=slots)
    async with (
        serving(
            stages,
            limits=bounds,
            api_keys_file=file if keys else None,
            allow_unauthenticated=not keys,
        ) as service,
        AsyncExitStack() as stack,
    ):
        yield Place(service, file, stack)


async def closing(line: ClientConnection) -> int | None:
    """Read on until the server closes; return its code."""
    async with asyncio.timeout(WAIT_S):
        with suppress(ConnectionClosed):
            while True:
                await line.recv()
    return line.close_code


@every_wire
async def test_one_key_is_used_up_while_another_works(wire: Wire, tmp_path: Path) -> None:
    async with keyed(tmp_path) as place:
        first = await place.open(wire, "a-key")
        assert await place.refusal(wire, "a-key") == TOO_MANY_SESSIONS
        assert place.asked == 1, "no stage is asked for a session that may not be"
        await place.open(wire, "b-key")
        await place.open(wire, "b-key")
        assert place.service.meter.of(SESSIONS_REFUSED) == {("too_many_sessions",): 1}
        await place.without(first)
        await place.open(wire, "a-key")


@every_wire
async def test_no_more_opens_in_a_minute_than_a_key_may(wire: Wire, tmp_path: Path) -> None:
    async with keyed(tmp_path, max_opens_per_key_per_minute=2) as place:
        for _ in range(2):
            await place.without(await place.open(wire, "b-key"))
        assert await place.refusal(wire, "b-key") == TOO_MANY_OPENS
        await place.open(wire, "a-key")
        assert place.asked == 3
        assert place.service.meter.of(SESSIONS_REFUSED) == {("too_many_opens",): 1}


async def test_a_session_without_a_client_counts_and_its_client_may_come_back(
    tmp_path: Path,
) -> None:
    bounds = "name=alice max_sessions=1 max_opens_per_minute=1\n"
    async with keyed(tmp_path, f"a-key {bounds}", disconnect_grace_s=30.0) as place:
        line = await place.dial(DUPLEX, "a-key")
        await line.send(update())
        created = await hear(line)
        line.transport.abort()
        assert await place.refusal(DUPLEX, "a-key") == TOO_MANY_SESSIONS
        place.rotate(f"n-key {bounds}")
        again = await place.dial(DUPLEX, "n-key")
        await again.send(
            client(
                "session.resume",
                session_id=created["session"]["id"],
                resume_token=created["resume_token"],
                last_received_server_event_seq=0,
            )
        )
        assert (await hear(again))["type"] == "session.resumed"
        await again.send(client("session.close"))
        await until(again, "session.closed")
        assert await place.refusal(DUPLEX, "n-key") == TOO_MANY_OPENS


async def test_a_session_that_could_not_open_gives_its_place_back(tmp_path: Path) -> None:
    async with keyed(tmp_path, slots=1) as place:
        place.service.directory.knobs.fail_next("open", StageFailed("no"))
        line = await place.dial(DUPLEX, "a-key")
        await line.send(DUPLEX.first)
        assert await closing(line) == 1011
        await place.without(await place.open(DUPLEX, "a-key"))
        await place.open(DUPLEX, "b-key")
        full = await place.dial(DUPLEX, "a-key")
        await full.send(DUPLEX.first)
        assert (await hear(full))["error"]["code"] == "resource_exhausted"
        assert await closing(full) == 1013


async def test_a_try_that_finds_no_free_slot_is_no_open(tmp_path: Path) -> None:
    async with keyed(tmp_path, slots=1, max_opens_per_key_per_minute=2) as place:
        first = await place.open(DUPLEX, "b-key")
        for _ in range(4):
            full = await place.dial(DUPLEX, "b-key")
            await full.send(DUPLEX.first)
            assert (await hear(full))["error"]["code"] == "resource_exhausted"
            assert await closing(full) == 1013
        await place.without(first)
        await place.without(await place.open(DUPLEX, "b-key"))
        assert await place.refusal(DUPLEX, "b-key") == TOO_MANY_OPENS


async def test_a_client_that_leaves_while_its_session_opens_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    async with keyed(tmp_path) as place:
        knobs = place.service.directory.knobs
        knobs.hold("open")
        line = await place.dial(DUPLEX, "a-key")
        await line.send(DUPLEX.first)
        await knobs.wait_called("open")
        assert await place.refusal(DUPLEX, "a-key") == TOO_MANY_SESSIONS
        line.transport.abort()
        knobs.release("open")
        await place.service.idle()
        await place.open(DUPLEX, "a-key")


async def test_of_two_that_race_for_the_last_place_one_gets_it(tmp_path: Path) -> None:
    async with keyed(tmp_path, "a-key max_sessions=2\n") as place:
        await place.open(DUPLEX, "a-key")
        lines = [await place.dial(DUPLEX, "a-key") for _ in range(4)]
        await asyncio.gather(*(line.send(DUPLEX.first) for line in lines))
        told = sorted([(await hear(line))["type"] for line in lines])
        assert told == ["error", "error", "error", "session.created"]
        assert place.asked == 2


async def test_whoever_comes_without_a_key_has_a_quota_too(tmp_path: Path) -> None:
    async with keyed(tmp_path, "", max_sessions_per_key=1) as place:
        await place.open(DUPLEX, None)
        assert await place.refusal(WIRES["openai"], None) == TOO_MANY_SESSIONS


async def test_two_keys_of_one_name_share_its_quota_and_one_can_go(tmp_path: Path) -> None:
    async with keyed(tmp_path) as place:
        first = await place.open(DUPLEX, "a-key")
        place.rotate(KEYS + "c-key name=alice\n")
        assert await place.refusal(DUPLEX, "c-key") == TOO_MANY_SESSIONS
        place.rotate("c-key name=alice max_sessions=2\n")
        with pytest.raises(InvalidStatus, match="401"):
            await place.dial(DUPLEX, "a-key")
        await place.open(DUPLEX, "c-key")
        assert await place.refusal(DUPLEX, "c-key") == TOO_MANY_SESSIONS
        await first.send(client("session.heartbeat"))
        await until(first, "session.heartbeat_ack")


# --- client secrets -----------------------------------------------------------------------------


async def make(place: Place, key: str) -> Any:
    """Ask for a client secret."""
    return await place.service.post(SECRETS_PATH, b"{}", Authorization=f"Bearer {key}")


async def test_a_secret_counts_against_the_key_that_made_it(tmp_path: Path) -> None:
    async with keyed(tmp_path) as place:
        secret = (await make(place, "a-key")).body["value"]
        await place.open(WIRES["openai"], "a-key")
        assert await place.refusal(WIRES["openai"], secret) == TOO_MANY_SESSIONS
        place.rotate("b-key name=bob\n")
        with pytest.raises(InvalidStatus, match="401"):
            await place.dial(WIRES["openai"], secret)


async def test_no_more_secrets_in_a_minute_than_sessions(tmp_path: Path) -> None:
    async with keyed(tmp_path, max_opens_per_key_per_minute=1) as place:
        wrong = await place.service.post(SECRETS_PATH, b"[]", Authorization="Bearer b-key")
        assert wrong.status == 400, "what is refused for itself is not counted"
        assert (await make(place, "b-key")).status == 200
        refused = await make(place, "b-key")
        assert refused.status == 429
        assert refused.body["error"]["type"] == "rate_limit_error"
        assert refused.body["error"]["code"] == "rate_limit_exceeded"
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert refused.headers["retry-after"] in refused.body["error"]["message"]
        assert place.service.meter.of(DOOR_REFUSALS) == {("http", "429"): 1}
        assert [(await make(place, "a-key")).status for _ in range(3)] == [200] * 3


# --- what clients are told ----------------------------------------------------------------------


async def rates(line: ClientConnection) -> list[dict[str, Any]]:
    """Ask for an answer; return the figures that come at its beginning."""
    part = {"type": "input_text", "text": "Hello."}
    item = {"type": "message", "role": "user", "content": [part]}
    await line.send(client("conversation.item.create", item=item))
    await line.send(client("response.create"))
    *_, created, told = await until(line, "rate_limits.updated")
    assert created["type"] == "response.created"
    await until(line, "response.done")
    limits: list[dict[str, Any]] = told["rate_limits"]
    return limits


async def test_an_answer_begins_with_what_is_left_of_the_opens(tmp_path: Path) -> None:
    openai = WIRES["openai"]
    async with keyed(tmp_path, max_opens_per_key_per_minute=3) as place:
        line = await place.open(openai, "b-key")
        [told] = await rates(line)
        reset_s = told.pop("reset_seconds")
        assert told == {"name": "requests", "limit": 3, "remaining": 2}
        assert 0 < reset_s <= 60
        await place.open(openai, "b-key")
        [told] = await rates(line)
        assert told["remaining"] == 1
        assert await rates(await place.open(openai, "a-key")) == [], "it is not bounded"


@pytest.mark.parametrize("name", ["duplex", "duplex_ga"])
async def test_a_session_shows_the_bounds_of_its_client(name: str, tmp_path: Path) -> None:
    async with keyed(tmp_path, max_sessions_per_key=7, max_opens_per_key_per_minute=9) as place:
        for key, sessions, opens in (("a-key", 1, None), ("b-key", 7, 9)):
            line = await place.dial(WIRES[name], key)
            await line.send(WIRES[name].first)
            told = json.dumps(await hear(line))
            assert f'"max_sessions_per_key": {json.dumps(sessions)}' in told
            assert f'"max_opens_per_key_per_minute": {json.dumps(opens)}' in told
