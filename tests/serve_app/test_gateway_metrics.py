"""What the gateway counts of sockets, and that nothing is left over when clients just leave."""

import asyncio
import socket
import struct
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import InvalidStatus

from serve_app.gateway.gateway_watch import GatewayWatch
from serve_app.metrics.definitions import (
    BUFFERED,
    DOOR_REFUSALS,
    ERRORS_SENT,
    FLOODS,
    GATEWAY_SECONDS,
    JAIN,
    LAG_RATIO,
    OPEN_SESSIONS,
    OPEN_SOCKETS,
    RESUMES,
    SESSION_SECONDS,
    SESSIONS_BEGUN,
    SESSIONS_ENDED,
    SLOW_READERS,
    SOCKETS_CLOSED,
    SOCKETS_OPENED,
    TAKEOVERS,
)
from serve_app.metrics.fairness import WINDOW_S, Fairness, jain_index, lag_ratio
from serve_app.sessions.open_sessions import OpenSessions
from serve_app.sessions.session_actor import READER_PATIENCE_S
from session.config import SessionLimits
from session.errors import StageUnavailable
from session.ids import SessionId
from tests.fakes.clock import FakeClock
from tests.fakes.line import dialled
from tests.fakes.meter import CountedMeter
from tests.fakes.rig import settle
from tests.fakes.server import Service, hear, serving, until
from tests.fakes.stages import ScriptedDirectory, answering
from tests.fakes.wire import append, client, update

AUTO: dict[str, Any] = {"extra_body": {"auto_response": True}}


def vanish(line: ClientConnection) -> None:
    """Leave without a word."""
    line.transport.close()


def reset(line: ClientConnection) -> None:
    """Break the connection with a TCP reset."""
    plain = line.transport.get_extra_info("socket")
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line.transport.abort()


async def closed_sockets(service: Service, sockets: int) -> None:
    """Wait until so many sockets have been counted as closed."""
    async with asyncio.timeout(15):
        while sum(service.meter.of(SOCKETS_CLOSED).values()) < sockets:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_fifty_clients_that_leave_abruptly_leave_nothing_behind() -> None:
    directory = ScriptedDirectory(max_sessions=8, speak_at_units=[1], sentences=5)
    async with serving(directory) as service:
        for index in range(50):
            async with service.dial() as line:
                await line.send(update(**AUTO))
                if index % 3:
                    await until(line, "session.created")
                if index % 5 == 0:
                    await line.send(append(1_000))
                (vanish, reset)[index % 2](line)
        await closed_sockets(service, 50)
        await service.idle()
        meter = service.meter
        service.gateway.watch.look()
        begun = meter.of(SESSIONS_BEGUN).get(("duplex",), 0)
        assert 33 <= begun <= 50  # some left before they had begun one
        assert sum(meter.of(SESSIONS_ENDED).values()) == begun
        assert set(meter.of(SESSIONS_ENDED)) <= {("disconnect",), ("not_opened",)}
        assert meter.of(SOCKETS_OPENED) == {("duplex",): 50}
        assert all(by == "client" for by, _ in meter.of(SOCKETS_CLOSED))
        for state in OPEN_SESSIONS.labels["state"]:
            assert meter.gauge(OPEN_SESSIONS, state) == 0
        assert meter.gauge(OPEN_SOCKETS) == meter.gauge(BUFFERED) == 0


async def test_gauges_are_what_there_is() -> None:
    limits = SessionLimits(disconnect_grace_s=30)
    directory = ScriptedDirectory(max_sessions=2)
    async with serving(directory, limits=limits) as service, service.dial() as b:
        async with service.dial() as a:
            for line in (a, b):
                await line.send(update())
                await until(line, "session.created")
            service.gateway.watch.look()
            assert service.meter.gauge(OPEN_SESSIONS, "active") == 2
            assert service.meter.gauge(OPEN_SOCKETS) == 2
            reset(a)
        await closed_sockets(service, 1)
        await settle()
        service.gateway.watch.look()
        assert service.meter.gauge(OPEN_SESSIONS, "active") == 1
        assert service.meter.gauge(OPEN_SESSIONS, "detached") == 1
        assert service.meter.gauge(OPEN_SOCKETS) == 1
        assert service.meter.of(SESSION_SECONDS)[()] > 0


async def test_closes_by_code_and_by_whom() -> None:
    async with serving(answering()) as service:
        async with service.dial() as line:
            await line.send(update())
            await until(line, "session.created")
            await line.send(client("session.close"))
            await until(line, "session.closed")
            await line.wait_closed()
        async with service.dial() as line:
            await line.send(update())
            await until(line, "session.created")
        async with service.dial("duplex=1&dialect=klingon") as line:
            await line.wait_closed()
        service.directory.unreachable = StageUnavailable("nobody there")
        service.gateway._directory = None  # noqa: SLF001 - it is found once
        async with service.dial() as line:
            assert (await hear(line))["type"] == "error"
        await closed_sockets(service, 4)
        await service.idle()
        assert service.meter.of(SOCKETS_CLOSED) == {
            ("server", "1000"): 1,
            ("client", "1000"): 1,
            ("server", "1008"): 1,
            ("server", "1013"): 1,
        }
        assert service.meter.of(SOCKETS_OPENED) == {("duplex",): 3, ("other",): 1}
        assert service.meter.of(ERRORS_SENT) == {
            ("invalid_request_error", "unsupported_option"): 1,
            ("server_error", "stage_unavailable"): 1,
        }


async def test_what_the_door_turns_away() -> None:
    async with serving(answering(), api_keys=("right",)) as service:
        with pytest.raises(InvalidStatus):
            async with service.dial():
                pass
        assert (await service.get("/v1/models")).status == 401
        assert (await service.get("/health/live")).status == 200
        assert service.meter.of(DOOR_REFUSALS) == {("socket", "401"): 1, ("http", "401"): 1}
        assert service.meter.of(SOCKETS_OPENED) == {}


async def test_a_client_that_sends_on_without_reading_its_refusals_floods() -> None:
    limits = SessionLimits(disconnect_grace_s=0, max_output_events_per_session=8)
    async with dialled(ScriptedDirectory(), limits=limits) as line:
        line.socket.stop_reading()
        for _ in range(20):
            line.socket.say(client("no.such.event"))
        await settle()
        line.socket.read_again()
        assert await line.socket.wait_closed() == (1013, "input_backpressure")
        assert line.meter.of(FLOODS) == {(): 1}
        assert line.meter.of(ERRORS_SENT)["invalid_request_error", "malformed_event"] > 8


async def test_a_client_that_does_not_read_its_answer_is_slow() -> None:
    limits = SessionLimits(disconnect_grace_s=0, max_output_events_per_session=2)
    async with dialled(answering(sentences=40), limits=limits) as line:
        line.socket.say(update(**AUTO))
        await line.until("session.updated")
        line.socket.stop_reading()
        line.socket.say(append(1_000))
        await settle()
        line.clock.advance(READER_PATIENCE_S + 1)
        await settle()
        line.socket.read_again()
        assert await line.socket.wait_closed() == (1013, "slow_reader")
        assert line.meter.of(SLOW_READERS) == {(): 1}
        assert line.meter.of(FLOODS) == {}


async def test_a_socket_that_takes_a_session_over() -> None:
    async with dialled(ScriptedDirectory(), limits=SessionLimits()) as line:
        line.socket.say(update())
        created = (await line.until("session.created"))[-1]
        again = line.another()
        token, session_id = created["resume_token"], created["session"]["id"]
        again.socket.say(client("session.resume", session_id=session_id, resume_token=token))
        await again.until("session.resumed")
        assert line.meter.of(TAKEOVERS) == {(): 1}
        assert line.meter.of(RESUMES) == {("resumed",): 1}
        again.socket.vanish()


async def test_a_resume_is_refused_whether_the_session_is_there_or_gone() -> None:
    async with dialled(ScriptedDirectory(), limits=SessionLimits()) as line:
        line.socket.say(update())
        created = (await line.until("session.created"))[-1]
        other = line.another()
        for session_id in (created["session"]["id"], "sess_of_a_gateway_that_is_gone"):
            other.socket.say(client("session.resume", session_id=session_id, resume_token="wrong"))
            assert (await other.hear())["type"] == "error"
        assert line.meter.of(RESUMES) == {("refused",): 2}
        other.socket.vanish()


async def test_frames_and_chunks_are_timed() -> None:
    async with serving(answering()) as service, service.dial() as line:
        await line.send(update(**AUTO))
        await until(line, "session.updated")
        for _ in range(5):
            await line.send(append(200))
        await until(line, "response.done")
        assert len(service.meter.values(GATEWAY_SECONDS, "frame_to_handled")) == 5
        assert len(service.meter.values(GATEWAY_SECONDS, "frame_to_append")) == 1
        assert len(service.meter.values(GATEWAY_SECONDS, "chunk_to_frame")) == 3
        assert service.meter.values(GATEWAY_SECONDS, "loop_delay")


# --- once a second ------------------------------------------------------------------------------


async def test_it_looks_every_second_until_it_is_stopped() -> None:
    meter, clock = CountedMeter(), FakeClock()
    watch = GatewayWatch(meter, OpenSessions(), clock, lambda _: None)
    watch.start()
    clock.advance(3.0)
    assert meter.refreshed == 4
    assert meter.values(GATEWAY_SECONDS, "loop_delay") == [0.0] * 4
    watch.stop()
    clock.advance(3.0)
    assert meter.refreshed == 4
    assert clock.pending == 0


async def test_unfairness_of_the_last_minute() -> None:
    meter, clock = CountedMeter(), FakeClock()
    watch = GatewayWatch(meter, OpenSessions(), clock, lambda _: None)
    watch.look()
    assert meter.gauge(JAIN) == meter.gauge(LAG_RATIO) == 1.0
    for seconds in (0.1, 0.3):
        watch.fairness.add(SessionId("a"), seconds, now=0.0)
    watch.fairness.add(SessionId("b"), 0.6, now=0.0)
    watch.look()
    assert meter.gauge(LAG_RATIO) == pytest.approx(0.6 / 0.4)
    assert meter.gauge(JAIN) == pytest.approx(0.8**2 / (2 * (0.2**2 + 0.6**2)))
    clock.advance(WINDOW_S + 1)
    watch.look()
    assert meter.gauge(JAIN) == meter.gauge(LAG_RATIO) == 1.0


def test_the_extremes_of_fairness() -> None:
    assert jain_index([0.2] * 7) == pytest.approx(1.0)
    assert jain_index([1.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
    assert jain_index([0.0, 0.0]) == lag_ratio([0.0, 0.0]) == 1.0
    assert Fairness().means(now=5.0) == []
