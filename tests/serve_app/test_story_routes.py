"""What an operator is told of sessions over HTTP."""

import asyncio
from typing import Any

import pytest

from serve_app.logs.story_views import SessionsView, StoryView
from session.config import SessionLimits
from tests.fakes.server import Service, serving, until
from tests.fakes.stages import ScriptedDirectory, answering
from tests.fakes.wire import append, client, update

AUTO: dict[str, Any] = {"extra_body": {"auto_response": True}}
PATH = "/admin/sessions"


async def sessions(service: Service, query: str = "") -> SessionsView:
    answer = await service.get(PATH + query)
    assert answer.status == 200
    return SessionsView.model_validate(answer.body)


async def story(service: Service, session_id: str, query: str = "") -> StoryView:
    answer = await service.get(f"{PATH}/{session_id}{query}")
    assert answer.status == 200
    return StoryView.model_validate(answer.body)


async def talk(service: Service) -> str:
    """Have a session with one answer; return its id."""
    async with service.dial() as line:
        await line.send(update(**AUTO))
        created = (await until(line, "session.created"))[-1]
        await line.send(append(1_000))
        await until(line, "response.done")
        await line.send(client("session.close"))
        await until(line, "session.closed")
    await service.idle()
    session_id: str = created["session"]["id"]
    return session_id


async def test_open_sessions_and_those_that_ended() -> None:
    limits = SessionLimits(disconnect_grace_s=30)
    async with serving(answering(max_sessions=2), limits=limits) as service:
        ended_id = await talk(service)
        async with service.dial() as line:
            await line.send(update())
            created = (await until(line, "session.created"))[-1]
            seen = await sessions(service)
            [going_on], [ended] = seen.open, seen.ended
            assert going_on.id == created["session"]["id"]
            assert (going_on.state, going_on.end_reason) == ("active", None)
            assert going_on.principal == "anyone"
            assert (going_on.stage0_replica, going_on.stage1_replica) == ("hearing", "speaking")
            assert going_on.began_at.endswith("Z")
            assert ended.id == ended_id
            assert (ended.state, ended.end_reason) == ("ended", "client_close")
            assert (ended.dialect, ended.answers) == ("duplex", 1)
            assert ended.units >= 1
            told = await story(service, going_on.id)
            assert told.session.state == "active"
            assert [entry.stimulus for entry in told.entries] == ["OpenRequested", "StagesOpened"]
            await line.send(client("session.close"))
            await until(line, "session.closed")


async def test_the_story_of_one_that_ended_whole_and_in_part() -> None:
    async with serving(answering()) as service:
        session_id = await talk(service)
        whole = await story(service, session_id)
        assert whole.left_out == 0
        assert whole.entries[-1].words == ["client_close"]
        assert whole.entries[-1].effects == ["SessionClosed", "CloseSocket"]
        assert any(entry.response_id for entry in whole.entries)
        part = await story(service, session_id, "?limit=3")
        assert part.entries == whole.entries[-3:]
        assert part.left_out == len(whole.entries) - 3
        assert (await sessions(service, "?limit=1")).ended[0].id == session_id


async def test_what_is_not_there_or_makes_no_sense() -> None:
    async with serving(ScriptedDirectory(), ended_stories=1) as service:
        answer = await service.get(f"{PATH}/sess_unknown")
        assert answer.status == 404
        assert answer.body["error"]["code"] == "session_not_found"
        assert "gateway.ended_stories" in answer.body["error"]["message"]
        for wrong in ("0", "-1", "many", "10001", "%C2%B9", ""):
            answer = await service.get(f"{PATH}?limit={wrong}")
            assert answer.status == 400
            assert answer.body["error"]["param"] == "limit"


@pytest.mark.parametrize("key", ["right", "secret"])
async def test_an_api_key_does_not_open_it(key: str) -> None:
    async with serving(answering(), api_keys=("right",), admin_keys=("secret",)) as service:
        bearer = {"Authorization": f"Bearer {key}"}
        answer = await service.get(PATH, **bearer)
        assert answer.status == (200 if key == "secret" else 403)


async def test_what_the_door_turns_away_is_a_line_and_then_a_number(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "serve_app")
    keyed: dict[str, Any] = {"api_keys": ("right",), "allow_unauthenticated": False}
    async with serving(answering(), **keyed) as service:
        asked = [service.get("/v1/models", Authorization=f"Bearer wrong{n}") for n in range(20)]
        for answer in await asyncio.gather(*asked):
            assert answer.status == 401
        [line] = [vars(each) for each in caplog.records if "status" in vars(each)]
        assert line["message"] == "turned away at the door"
        assert (line["reason"], line["levelname"]) == ("http", "WARNING")
        service.gateway.records.bounded.flush(service.gateway.now() + 60)
        told = vars(caplog.records[-1])
        assert (told["message"], told["count"]) == ("turned away at the door", 19)
    assert "wrong" not in caplog.text


async def test_a_socket_that_gets_no_session_is_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "serve_app")
    async with serving(answering()) as service:
        async with service.dial("duplex=1&dialect=klingon") as line:
            await line.wait_closed()
        async with service.dial() as line:
            await line.send("no json")
            await until(line, "error")
    found = {each.message: vars(each) for each in caplog.records}
    assert found["a socket got no session"]["error_code"] == "unsupported"
    early = found["refused before there is a session"]
    assert (early["error_code"], early["dialect"]) == ("invalid_json", "duplex")
