"""A drain ends for certain: sockets without a session go by its deadline; none comes after it."""

import asyncio
from dataclasses import replace

import pytest
from websockets.exceptions import InvalidStatus

from serve_app.dialects import KITS, DialectKit
from serve_app.metrics.definitions import DOOR_REFUSALS
from session.config import SessionLimits
from tests.fakes.line import Line, dialled
from tests.fakes.rig import settle
from tests.fakes.server import WAIT_S, hear, serving
from tests.fakes.stages import ScriptedDirectory, answering
from tests.fakes.wire import client, update

DRAIN = "/admin/drain"
RESUMES = SessionLimits()
LEFT = (1012, "server_drain")
EVERY = [pytest.param(kit, id=kit.dialect.value) for kit in KITS.values()]


async def greeted(line: Line) -> None:
    """Read what a socket is told before its client says anything."""
    await settle()
    if line.kit.greets:
        assert (await line.hear())["type"] == "session.created"


async def sent_away(line: Line) -> None:
    """Read that the server drains, and the end."""
    said = await line.hear()
    assert (said["type"], said["error"]["code"]) == ("error", "server_draining")
    assert await line.socket.wait_closed() == LEFT
    await line.ended()
    assert len(line.sessions) == 0


# --- until when ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kit", EVERY)
async def test_a_drain_that_begins_ends_the_wait_of_a_socket_at_its_deadline(
    kit: DialectKit,
) -> None:
    async with dialled(ScriptedDirectory(), kit=kit) as line:
        await greeted(line)
        line.sessions.drain(line.clock.now() + 1)
        line.clock.advance(0.9)
        await settle()
        assert line.socket.closed is None
        line.clock.advance(0.1)
        await sent_away(line)


@pytest.mark.parametrize("kit", EVERY)
async def test_a_socket_that_comes_during_a_drain_waits_no_longer_than_that(
    kit: DialectKit,
) -> None:
    line = Line(ScriptedDirectory(), kit=kit)
    line.sessions.drain(line.clock.now() + 1)
    line.dial()
    await greeted(line)
    line.clock.advance(1)
    await sent_away(line)
    assert line.clock.pending == 0


@pytest.mark.parametrize("kit", EVERY)
async def test_a_deadline_that_is_far_gives_no_more_time_than_there_was(kit: DialectKit) -> None:
    async with dialled(ScriptedDirectory(), kit=kit) as line:
        await greeted(line)
        line.sessions.drain(line.clock.now() + 10 * line.limits.config_timeout_s)
        line.clock.advance(line.limits.config_timeout_s)
        await sent_away(line)


async def test_another_deadline_holds_from_then_on() -> None:
    async with dialled(ScriptedDirectory()) as line:
        await settle()
        line.sessions.drain(line.clock.now() + 1)
        line.sessions.drain(line.clock.now() + 3)
        line.clock.advance(2)
        await settle()
        assert line.socket.closed is None
        line.clock.advance(1)
        await sent_away(line)


async def test_a_drain_that_is_taken_back_leaves_a_socket_the_time_it_had() -> None:
    async with dialled(ScriptedDirectory()) as line:
        await settle()
        line.sessions.drain(line.clock.now() + 1)
        line.sessions.stay()
        line.clock.advance(1)
        await settle()
        assert line.socket.closed is None
        line.clock.advance(line.limits.config_timeout_s - 1)
        assert (await line.hear())["error"]["code"] == "config_timeout"
        assert await line.socket.wait_closed() == (1000, "config_timeout")


async def test_a_socket_that_has_a_session_leaves_with_it_and_not_before() -> None:
    async with dialled(ScriptedDirectory()) as line:
        line.socket.say(update())
        await line.until("session.updated")
        line.sessions.drain(line.clock.now() + 100)
        assert (await line.hear())["type"] == "session.expiring"
        said = await _rest(line)
        assert "error" not in said


async def test_a_resume_that_is_refused_does_not_begin_the_wait_anew() -> None:
    limits = replace(RESUMES, config_timeout_s=5)
    async with dialled(ScriptedDirectory(), limits=limits) as line:
        line.sessions.drain(line.clock.now() + 1)
        asked = client("session.resume", session_id="s", resume_token="t")
        line.socket.say(asked)
        assert (await line.hear())["error"]["code"] == "session_resume_expired"
        line.clock.advance(1)
        await sent_away(line)


# --- after the deadline -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        pytest.param("duplex=1", id="may-resume"),
        pytest.param("duplex=1&resume=1", id="resumes"),
        pytest.param("model=m", id="begins"),
        pytest.param("call_id=1", id="is-wrong"),
    ],
)
async def test_after_the_deadline_every_socket_is_refused_in_its_handshake(query: str) -> None:
    async with serving(answering(), limits=RESUMES) as service:
        await service.post(DRAIN, b'{"within_s": 0}')
        with pytest.raises(InvalidStatus) as refused:
            await service.dial(query)
        assert refused.value.response.status_code == 503
        assert service.meter.of(DOOR_REFUSALS) == {("socket", "503"): 1}


async def test_silent_clients_that_come_again_and_again_do_not_hold_a_drain_up() -> None:
    async with serving(answering(), limits=RESUMES) as service:

        async def pest() -> int:
            comes = 0
            try:
                while True:
                    async with service.dial() as line:
                        comes += 1
                        assert (await hear(line))["error"]["code"] == "server_draining"
                        await line.wait_closed()
                        assert line.close_code == 1012
            except InvalidStatus:
                return comes

        pests = [asyncio.create_task(pest()) for _ in range(2)]
        async with asyncio.timeout(WAIT_S):
            while service.gateway.watch.open_sockets() < len(pests):
                await settle()
        await service.post(DRAIN, b'{"within_s": 0}')
        assert await asyncio.gather(*pests) == [1, 1]
        async with asyncio.timeout(WAIT_S):
            while service.gateway.watch.open_sockets():
                await settle()
        assert (await service.get(DRAIN)).body["state"] == "drained"


async def _rest(line: Line) -> list[str]:
    """Let the session become quiet; return the kinds of what is read until its end."""
    line.clock.advance(100)
    said = [event["type"] for event in await line.until("session.expired")]
    assert (await line.socket.wait_closed())[0] == 1012
    return said
