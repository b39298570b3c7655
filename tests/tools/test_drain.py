"""`make drain` against a real gateway, and what a node does before it goes."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from session.config import SessionLimits
from tests.fakes.server import Service, hear, serving, until
from tests.fakes.stages import answering
from tests.fakes.wire import append, update
from tools.drain import (
    FOLLOW_S,
    HANGS,
    NOT_DRAINED,
    OVERTIME_S,
    TAKEN_BACK,
    Door,
    Time,
    View,
    drain,
    leave_node,
    main,
)

RESUMES = SessionLimits()


@dataclass
class Told:
    """What was said, and a clock that goes on when somebody waits."""

    lines: list[str] = field(default_factory=list)
    now_s: float = 0.0

    def say(self, text: str) -> None:
        self.lines.append(text)

    def clock(self) -> Time:
        return Time(now=lambda: self.now_s, unix_now=lambda: self.now_s, sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now_s += seconds


def door(service: Service, key: str | None = None) -> Door:
    return Door(f"http://127.0.0.1:{service.port}/", key)


async def test_it_waits_until_the_last_session_has_gone() -> None:
    told = Told()
    async with serving(answering(), limits=RESUMES) as service, service.dial() as line:
        await line.send(update())
        await hear(line)
        # In real time: the session's pause is real.
        waits = asyncio.to_thread(drain, door(service), 600, Time(), told.say)
        asked = asyncio.create_task(waits)
        await line.wait_closed()
        assert line.close_code == 1012
        assert await asked == 0
    assert told.lines[0] == "draining: 1 sessions (1 active), 1 sockets left"
    assert told.lines[-1] == "drained: nothing is left"


async def test_who_was_cut_at_the_deadline_is_told_in_the_last_line() -> None:
    told = Told()
    stages = answering(hang_at_chunks=[2])
    async with serving(stages, limits=RESUMES) as service, service.dial() as line:
        await line.send(update(extra_body={"auto_response": True}))
        await line.send(append(1_000))
        await until(line, "response.speak")
        asked = asyncio.create_task(asyncio.to_thread(drain, door(service), 0, Time(), told.say))
        await line.wait_closed()
        assert line.close_reason == "server_drain_deadline"
        assert await asked == 0
    assert told.lines[-1] == "drained: nothing is left; 1 sessions cut at the deadline"


async def test_a_drain_that_is_taken_back_is_none() -> None:
    told = Told()
    async with serving(answering(), limits=RESUMES) as service, service.dial():

        class Back(Door):
            """Somebody takes the drain back in the meantime."""

            def ask(self, method: str, fields: object = None) -> object:  # type: ignore[override]
                if method == "GET":
                    Door.ask(self, "DELETE")
                return Door.ask(self, method)

        asked = Back(door(service).url, None)
        rc = await asyncio.to_thread(drain, asked, None, told.clock(), told.say)
    assert rc == TAKEN_BACK
    assert told.lines[-1].startswith("not drained")


def test_a_drain_that_a_stage_holds_up_is_waited_for_only_so_long() -> None:
    deadline = 100
    told = Told()
    left = View("draining", {"opening": 1, "closing": 0}, 0, deadline, 0, "here")

    class Held(Door):
        """Its session never gives its stages back."""

        def ask(self, method: str, fields: object = None) -> View:
            return left

    rc = drain(Held("http://held", None), None, told.clock(), told.say)
    assert (rc, told.now_s) == (HANGS, deadline + OVERTIME_S)
    assert told.lines[-1] == (
        "not drained 60 s after the deadline, a stage may hang: "
        "1 sessions (1 opening), 0 sockets left"
    )


async def test_who_has_no_key_is_told_the_servers_words() -> None:
    told = Told()
    async with serving(answering(), admin_keys=("root",)) as service:
        rc = await asyncio.to_thread(drain, door(service), None, told.clock(), told.say)
        assert (rc, told.lines) == (
            NOT_DRAINED,
            ["401: Send an admin key: 'Authorization: Bearer KEY'."],
        )
        assert await asyncio.to_thread(drain, door(service, "root"), 5, Time(), told.say) == 0


def test_a_service_that_is_not_there_is_said_to_be_that() -> None:
    told = Told()
    assert drain(Door("http://127.0.0.1:9", None), None, told.clock(), told.say) == NOT_DRAINED
    assert "does not answer" in told.lines[0]


async def test_the_node_of_the_gateway_drains_it() -> None:
    told = Told()
    async with serving(answering()) as service:
        rc = await asyncio.to_thread(
            leave_node, door(service), "127.0.0.1", None, told.clock(), told.say
        )
        assert rc == 0
        assert service.gateway.sessions.is_draining


async def test_another_node_goes_when_the_gateway_serves_on() -> None:
    told = Told()
    async with serving(answering()) as service:
        rc = await asyncio.to_thread(
            leave_node, door(service), "10.0.0.9", None, told.clock(), told.say
        )
        assert (rc, told.now_s) == (0, FOLLOW_S)
        assert not service.gateway.sessions.is_draining


async def test_another_node_waits_for_a_drain_that_goes_on() -> None:
    told = Told()
    async with serving(answering()) as service:
        await service.post("/admin/drain", b"")
        rc = await asyncio.to_thread(
            leave_node, door(service), "10.0.0.9", None, told.clock(), told.say
        )
        assert rc == 0
        assert told.lines == ["drained: nothing is left"]


async def test_the_command_takes_its_key_from_environment_or_file_and_can_take_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "keys"
    file.write_text("root\n")
    async with serving(answering(), admin_keys=("root",)) as service:
        url = ["--url", door(service).url]
        assert await asyncio.to_thread(main, [*url, "--key-file", str(file)]) == 0
        assert service.gateway.sessions.is_draining
        monkeypatch.setenv("KEY", "root")
        assert await asyncio.to_thread(main, [*url, "--cancel"]) == 0
        assert not service.gateway.sessions.is_draining
        monkeypatch.setenv("KEY", "wrong")
        assert await asyncio.to_thread(main, [*url, "--cancel"]) == NOT_DRAINED
    assert "serving: 0 sessions (none), 0 sockets" in capsys.readouterr().out
