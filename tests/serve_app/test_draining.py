"""Draining a gateway over real sockets and HTTP: nobody is cut off, and nobody new comes in."""

import json
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from serve_app.metrics.definitions import DOOR_REFUSALS, DRAINING, SESSIONS_ENDED
from session.config import SessionLimits
from tests.fakes.server import Answer, Service, hear, serving, until
from tests.fakes.stages import answering
from tests.fakes.wire import append, client, update

DRAIN = "/admin/drain"
RESUMES = SessionLimits()
AUTO: dict[str, Any] = {"extra_body": {"auto_response": True}}
NEW = {
    "/v1/realtime?model=m": None,
    "/v1/realtime?duplex=1&model=m": None,
    "/v1/live/sessions": None,
}
"""What can only begin a session, also where sessions can be resumed."""


async def drain(service: Service, **fields: Any) -> Answer:
    return await service.post(DRAIN, json.dumps(fields).encode())


async def opened(line: ClientConnection, **session: Any) -> dict[str, Any]:
    await line.send(update(**session))
    created = await hear(line)
    assert created["type"] == "session.created"
    assert (await hear(line))["type"] == "session.updated"
    return created


async def rest(line: ClientConnection) -> list[dict[str, Any]]:
    """Read on to the end of the socket."""
    read: list[dict[str, Any]] = []
    try:
        while True:
            read.append(await hear(line))
    except ConnectionClosed:
        return read


def dial(service: Service, target: str) -> connect:
    return connect(f"ws://127.0.0.1:{service.port}{target}", compression=None)


async def test_an_answer_is_heard_to_its_end_and_then_the_socket_is_closed_for_a_restart() -> None:
    async with serving(answering(), limits=RESUMES) as service, service.dial() as line:
        await opened(line, **AUTO)
        service.directory.knobs.hold("chunk")
        await line.send(append(1_000))
        await service.directory.knobs.wait_called("chunk")
        told = await drain(service, within_s=600)
        assert (told.status, told.body["state"]) == (200, "draining")
        assert told.body["sessions"] == {"opening": 0, "active": 1, "detached": 0, "closing": 0}
        assert told.body["deadline"] == told.body["since"] + 600
        assert (told.body["replica"], told.body["node"]) == ("local", "127.0.0.1")
        [notice] = [e for e in await until(line, "session.expiring") if "reason" in e]
        assert notice["reason"] == "server_drain"
        service.directory.knobs.release("chunk")
        said = await rest(line)
        [done] = [e for e in said if e["type"] == "response.done"]
        assert done["response"]["status"] == "completed"
        assert said[-1]["type"] == "session.expired"
        assert (line.close_code, line.close_reason) == (1012, "server_drain")
        await service.idle()
        assert service.meter.of(SESSIONS_ENDED) == {("server_drain",): 1}
        assert (await service.get(DRAIN)).body["cut_sessions"] == 0, "it was not cut"


async def test_a_drain_is_over_when_neither_session_nor_socket_is_left() -> None:
    async with serving(answering(), limits=RESUMES) as service:
        assert (await service.get(DRAIN)).body["state"] == "serving"
        async with service.dial() as waits:
            assert (await drain(service)).body["state"] == "draining"
            await waits.send(update())
            await rest(waits)
        again = await service.get(DRAIN)
        assert (again.body["state"], again.body["sockets"]) == ("drained", 0)


async def test_asked_again_it_goes_on_and_another_time_holds_from_then_on() -> None:
    async with serving(answering(), limits=RESUMES) as service:
        first = (await drain(service, within_s=100)).body
        assert (await service.post(DRAIN, b"")).body == first
        later = (await drain(service, within_s=500)).body
        assert later["since"] == first["since"]
        assert later["deadline"] >= first["deadline"] + 400


async def test_without_a_time_it_takes_as_long_as_the_longest_session() -> None:
    for longest, lasts in ((1200.0, 1200), (None, 3600)):
        async with serving(answering(), limits=SessionLimits(max_session_s=longest)) as service:
            told = (await service.post(DRAIN, b"")).body
            assert told["deadline"] - told["since"] == lasts


async def test_at_the_deadline_an_answer_is_cut() -> None:
    stages = answering(hang_at_chunks=[2])
    async with serving(stages, limits=RESUMES) as service, service.dial() as line:
        await opened(line, **AUTO)
        await line.send(append(1_000))
        await until(line, "response.speak")
        await drain(service, within_s=0)
        said = await rest(line)
        [done] = [e for e in said if e["type"] == "response.done"]
        assert done["response"]["status"] == "cancelled"
        assert (line.close_code, line.close_reason) == (1012, "server_drain_deadline")
        await service.idle()
        assert service.meter.of(SESSIONS_ENDED) == {("server_drain_deadline",): 1}
        assert (await service.get(DRAIN)).body["cut_sessions"] == 1
        assert (await service.ask("DELETE", DRAIN)).body["cut_sessions"] == 0
        assert (await drain(service)).body["cut_sessions"] == 0, "another drain counts anew"


# --- who is let in ------------------------------------------------------------------------------


@pytest.mark.parametrize("target", NEW)
async def test_what_can_only_begin_a_session_is_refused_in_its_handshake(target: str) -> None:
    async with serving(answering(), limits=RESUMES) as service:
        await drain(service)
        with pytest.raises(InvalidStatus) as refused:
            await dial(service, target)
        response = refused.value.response
        assert (response.status_code, response.headers["Retry-After"]) == (503, "5")
        error = json.loads(response.body or b"")["error"]
        assert (error["type"], error["code"]) == ("server_error", "server_draining")
        assert service.meter.of(DOOR_REFUSALS) == {("socket", "503"): 1}


async def test_where_nothing_can_be_resumed_every_socket_is_new() -> None:
    async with serving(answering()) as service:
        await drain(service)
        with pytest.raises(InvalidStatus) as refused:
            await service.dial()
        assert refused.value.response.status_code == 503


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(update(event_id="u"), id="update"),
        pytest.param(client("session.heartbeat"), id="another"),
    ],
)
async def test_a_socket_that_may_resume_comes_in_and_begins_nothing(first: str) -> None:
    async with serving(answering(), limits=RESUMES) as service:
        await drain(service)
        async with service.dial() as line:
            await line.send(first)
            [error] = await rest(line)
            assert error["error"]["code"] == "server_draining"
            assert error["error"]["type"] == "server_error"
            assert (line.close_code, line.close_reason) == (1012, "server_drain")
        assert service.directory.knobs.names() == []


async def test_a_socket_that_was_greeted_is_refused_when_it_begins() -> None:
    async with serving(answering(), limits=RESUMES) as service, service.dial("model=m") as line:
        assert (await hear(line))["type"] == "session.created"
        await drain(service)
        await line.send(update(type="realtime"))
        [error] = await rest(line)
        assert error["error"]["code"] == "server_draining"
        assert line.close_code == 1012


async def test_a_client_that_lost_its_socket_comes_back_and_leaves_properly() -> None:
    async with serving(answering(), limits=RESUMES) as service:
        async with service.dial() as line:
            created = await opened(line)
            line.transport.abort()
        assert (await drain(service)).body["state"] == "draining"
        async with service.dial() as again:
            await again.send(
                client(
                    "session.resume",
                    session_id=created["session"]["id"],
                    resume_token=created["resume_token"],
                    last_received_server_event_seq=1,
                )
            )
            said = await rest(again)
            assert [e["type"] for e in said] == [
                "session.resumed",
                "session.expiring",
                "session.expired",
            ]
            assert again.close_code == 1012


async def test_who_is_wrong_is_told_so_and_not_that_the_server_drains() -> None:
    async with serving(answering(), limits=RESUMES) as service:
        await drain(service)
        async with dial(service, "/v1/realtime?call_id=1") as line:
            [error] = await rest(line)
            assert (error["error"]["code"], line.close_code) == ("unsupported", 1008)


# --- the wires ----------------------------------------------------------------------------------


async def test_the_openai_wire_has_no_word_for_it_and_ends_as_it_always_does() -> None:
    async with serving(answering(), limits=RESUMES) as service, service.dial("model=m") as line:
        await line.send(update(type="realtime"))
        await until(line, "session.updated")
        await drain(service)
        [error] = await rest(line)
        assert (error["type"], error["error"]["code"]) == ("error", "session_expired")
        assert (line.close_code, line.close_reason) == (1012, "server_drain")


async def test_the_live_wire_says_it_as_information() -> None:
    async with (
        serving(answering(), limits=RESUMES) as service,
        dial(service, "/v1/live/sessions") as line,
    ):
        await line.send(client("session.start", session={"model": "any"}))
        assert (await hear(line))["type"] == "session.started"
        await drain(service)
        said = await rest(line)
        codes = [e["code"] for e in said if e["type"] == "info"]
        assert codes == ["session_expiring", "server_drain"]
        assert said[-1]["type"] == "session.closed"
        assert line.close_code == 1012


# --- the operator -------------------------------------------------------------------------------


async def test_health_says_draining_so_that_load_balancers_send_nobody() -> None:
    async with serving(answering(), limits=RESUMES) as service:
        await drain(service)
        health = await service.get("/health")
        assert (health.status, health.body["status"]) == (503, "draining")
        assert (await service.get("/health/live")).status == 200
        assert (await service.get("/v1/models")).status == 200
        service.gateway.watch.look()
        assert service.meter.gauge(DRAINING) == 1


async def test_it_can_be_taken_back() -> None:
    async with serving(answering(max_sessions=2), limits=RESUMES) as service:
        async with service.dial() as line:
            await opened(line, **AUTO)
            service.directory.knobs.hold("chunk")
            await line.send(append(1_000))
            await service.directory.knobs.wait_called("chunk")
            await drain(service)
            back = await service.ask("DELETE", DRAIN)
            assert back.body["state"] == "serving"
            assert (back.body["since"], back.body["deadline"]) == (None, None)
            assert (await service.ask("DELETE", DRAIN)).body == back.body
            service.directory.knobs.release("chunk")
            await until(line, "rate_limits.updated")
            await line.send(client("session.heartbeat"))
            assert (await hear(line))["type"] == "session.heartbeat_ack"
            async with service.dial() as new:
                await opened(new)
                await new.send(client("session.close"))
                await rest(new)
            await line.send(client("session.close"))
            await rest(line)
        assert (await service.get("/health")).status == 200
        service.gateway.watch.look()
        assert service.meter.gauge(DRAINING) == 0


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"{", (400, "invalid_json", None)),
        (b"\xff", (400, "invalid_json", None)),
        (b"[]", (400, "invalid_json", None)),
        (b'{"within": 3}', (400, "unknown_parameter", "within")),
        (b'{"within_s": "3"}', (400, "invalid_type", "within_s")),
        (b'{"within_s": true}', (400, "invalid_type", "within_s")),
        (b'{"within_s": NaN}', (400, "invalid_json", None)),
        (b'{"within_s": -1}', (400, "invalid_value", "within_s")),
        (b'{"within_s": 1e9}', (400, "invalid_value", "within_s")),
        (b" " * 4097, (413, "event_too_large", None)),
    ],
)
async def test_a_body_that_is_wrong_is_refused_and_changes_nothing(
    body: bytes, expected: tuple[int, str, str | None]
) -> None:
    async with serving(answering()) as service:
        answer = await service.post(DRAIN, body)
        error = answer.body["error"]
        assert (answer.status, error["code"], error.get("param")) == expected
        assert (await service.get(DRAIN)).body["state"] == "serving"


async def test_another_method_is_told_which_there_are() -> None:
    async with serving(answering()) as service:
        answer = await service.ask("PUT", DRAIN)
        assert answer.status == 405
        assert answer.body["error"]["code"] == "method_not_allowed"
        assert answer.body["error"]["message"].endswith("it takes DELETE, GET, POST.")


async def test_it_is_for_operators() -> None:
    keys: dict[str, Any] = {
        "api_keys": ("client",),
        "admin_keys": ("root",),
        "allow_unauthenticated": False,
    }
    async with serving(answering(), **keys) as service:
        assert (await service.post(DRAIN, b"")).status == 401
        assert (await service.post(DRAIN, b"", Authorization="Bearer client")).status == 403
        assert not service.gateway.sessions.is_draining
        assert (await service.post(DRAIN, b"", Authorization="Bearer root")).status == 200
