"""The door over real sockets and HTTP: client secrets, subprotocols, and clients of the beta."""

import json
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from serve_app.gateway.secret_routes import MAX_BODY_BYTES, SECRETS_PATH
from tests.fakes.server import Answer, Service, hear, serving, until
from tests.fakes.stages import answering
from tests.fakes.wire import client, update

KEY = {"Authorization": "Bearer right"}
KEYED: dict[str, Any] = {"api_keys": ("right",), "allow_unauthenticated": False}
KEY_PROTOCOL = "openai-insecure-api-key."
SPOKEN = {
    "type": "realtime",
    "instructions": "Be brief.",
    "audio": {"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 700}}},
}


async def make(service: Service, headers: dict[str, str] = KEY, **fields: Any) -> Answer:
    """Ask for a client secret."""
    return await service.post(SECRETS_PATH, json.dumps(fields).encode(), **headers)


def reason(answer: Answer) -> tuple[int, str, str | None]:
    """Status, code and param of a refusal, which has the error object and nothing else."""
    assert answer.body.keys() == {"error"}
    error = answer.body["error"]
    assert error["message"]
    assert error["type"] in {"invalid_request_error", "rate_limit_error", "server_error"}
    return answer.status, error["code"], error.get("param")


# --- client secrets -----------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["header", "subprotocol"])
@pytest.mark.parametrize("settings", [KEYED, {}], ids=["keys", "open"])
async def test_a_secret_opens_a_session_with_its_settings(
    way: str, settings: dict[str, Any]
) -> None:
    async with serving(answering(), **settings) as service:
        made = await make(service, KEY if settings else {}, session=SPOKEN)
        assert made.status == 200
        value = made.body["value"]
        shown: dict[str, Any] = (
            {"additional_headers": {"Authorization": f"Bearer {value}"}}
            if way == "header"
            else {"subprotocols": ["realtime", KEY_PROTOCOL + value]}
        )
        async with service.dial(**shown) as line:
            assert line.subprotocol == (None if way == "header" else "realtime")
            await line.send(client("session.heartbeat"))
            session = (await hear(line))["session"]
            assert session["instructions"] == "Be brief."
            assert session["turn_detection"]["silence_duration_ms"] == 700
            assert session["model"] == "scripted"


async def test_what_the_client_says_itself_comes_on_top() -> None:
    async with serving(answering(), **KEYED) as service:
        made = await make(service, session=SPOKEN)
        bearer = {"Authorization": f"Bearer {made.body['value']}"}
        async with service.dial(additional_headers=bearer) as line:
            await line.send(update(instructions="Be long."))
            session = (await hear(line))["session"]
            assert session["instructions"] == "Be long."
            assert session["turn_detection"]["silence_duration_ms"] == 700


async def test_on_the_live_wire_a_secret_opens_the_door_and_changes_nothing() -> None:
    async with serving(answering(), **KEYED) as service:
        made = await make(service, session=SPOKEN)
        bearer = {"Authorization": f"Bearer {made.body['value']}"}
        url = f"ws://127.0.0.1:{service.port}/v1/live/sessions"
        async with connect(url, additional_headers=bearer) as line:
            audio = {"format": {"type": "audio/pcm", "rate": 24000}}
            start = {"model": "any", "audio": audio}
            await line.send(client("session.start", session=start))
            started = await hear(line)
            assert started["type"] == "session.started"
            assert "instructions" not in started["session"]


async def test_a_secret_opens_more_than_one_session() -> None:
    async with serving(answering(max_sessions=2), **KEYED) as service:
        made = await make(service)
        bearer = {"Authorization": f"Bearer {made.body['value']}"}
        first, second = (
            service.dial(additional_headers=bearer),
            service.dial(additional_headers=bearer),
        )
        async with first as one, second as two:
            for line in (one, two):
                await line.send(update())
                assert (await hear(line))["type"] == "session.created"


async def test_a_session_outlives_its_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_800_000_000
    for module in ("serve_app.gateway.gateway", "serve_app.gateway.secret_routes"):
        monkeypatch.setattr(f"{module}.unix_now_s", lambda: now)
    async with serving(answering(max_sessions=2), **KEYED) as service:
        made = await make(service, expires_after={"anchor": "created_at", "seconds": 10})
        assert made.body["expires_at"] == now + 10
        bearer = {"Authorization": f"Bearer {made.body['value']}"}
        async with service.dial(additional_headers=bearer) as line:
            await line.send(update())
            await until(line, "session.updated")
            now += 10
            with pytest.raises(InvalidStatus) as refused:
                await service.dial(additional_headers=bearer)
            assert refused.value.response.status_code == 401
            assert b"expired" in (refused.value.response.body or b"")
            await line.send(client("session.heartbeat"))
            assert (await hear(line))["type"] == "session.heartbeat_ack"


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}])
async def test_only_an_api_key_makes_a_secret(headers: dict[str, str]) -> None:
    async with serving(answering(), **KEYED) as service:
        assert reason(await make(service, headers))[:2] == (401, "invalid_api_key")
        made = await make(service)
        with_secret = {"Authorization": f"Bearer {made.body['value']}"}
        assert reason(await make(service, with_secret))[:2] == (401, "invalid_api_key")
        assert (await service.get("/v1/models", **with_secret)).status == 401


async def test_no_secrets_where_nobody_comes_in() -> None:
    async with serving(answering(), allow_unauthenticated=False) as service:
        assert reason(await make(service, {}))[:2] == (403, "forbidden")


async def test_pages_from_elsewhere_can_not_make_secrets() -> None:
    async with serving(answering(), allowed_origins=("https://app.example",)) as service:
        evil, own = {"Origin": "https://evil.example"}, {"Origin": "https://app.example"}
        assert reason(await make(service, evil))[:2] == (403, "forbidden")
        assert len(service.gateway.secrets) == 0
        made = await make(service, own)
        offer = ["realtime", KEY_PROTOCOL + made.body["value"]]
        async with service.dial(origin=own["Origin"], subprotocols=offer) as line:
            assert line.subprotocol == "realtime"
        with pytest.raises(InvalidStatus) as refused:
            await service.dial(origin=evil["Origin"], subprotocols=offer)
        assert refused.value.response.status_code == 403


async def test_a_bad_request_gets_one_typed_error() -> None:
    async with serving(answering()) as service:
        answers = {
            b"{": (400, "invalid_json", None),
            b'{"expires_after": {"anchor": "then"}}': (
                400,
                "invalid_value",
                "expires_after.anchor",
            ),
            b'{"session": {"type": "transcription"}}': (400, "unsupported_option", "session.type"),
            b'{"session": {"type": "realtime", "instructions": 7}}': (
                400,
                "invalid_type",
                "session.instructions",
            ),
            b" " * (MAX_BODY_BYTES + 1): (413, "event_too_large", None),
        }
        for body, expected in answers.items():
            assert reason(await service.post(SECRETS_PATH, body)) == expected
        assert len(service.gateway.secrets) == 0


async def test_instructions_of_full_length_fit_however_they_are_escaped() -> None:
    async with serving(answering()) as service:
        made = await make(service, {}, session={"type": "realtime", "instructions": "é" * 65_536})
        assert made.status == 200


async def test_who_asks_for_what_is_not_here_is_told_what_is() -> None:
    async with serving(answering(), **KEYED) as service:
        answer = await service.post("/v1/realtime/sessions", b"{}", **KEY)
        assert reason(answer) == (404, "not_found", None)
        assert SECRETS_PATH in answer.body["error"]["message"]
        for path in ("/v1/realtime/calls", "/v1/realtime/transcription_sessions"):
            assert reason(await service.post(path, b"", **KEY)) == (404, "not_found", None)


# --- subprotocols -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offer", "selected"),
    [
        (None, None),  # programs send a header, and no subprotocol
        (["realtime", KEY_PROTOCOL + "right"], "realtime"),
        ([KEY_PROTOCOL + "right"], None),
        ([KEY_PROTOCOL + "right", "realtime"], "realtime"),
        (
            [
                "realtime",
                KEY_PROTOCOL + "right",
                "openai-organization.org-1",
                "openai-project.proj_1",
                "openai-agents-sdk.0.4.1",
            ],
            "realtime",
        ),
    ],
)
async def test_a_subprotocol_is_selected_only_when_offered(
    offer: list[str] | None, selected: str | None
) -> None:
    headers = KEY if offer is None else {}
    async with (
        serving(answering(), **KEYED) as service,
        service.dial(subprotocols=offer, additional_headers=headers) as line,
    ):
        assert line.subprotocol == selected
        assert line.response is not None
        assert line.response.headers.get("Sec-WebSocket-Protocol") == selected
        await line.send(update())
        assert (await hear(line))["type"] == "session.created"


# --- the beta -----------------------------------------------------------------------------------

BETA: list[dict[str, Any]] = [
    {"additional_headers": {"OpenAI-Beta": "realtime=v1"}},
    {"subprotocols": ["realtime", "openai-beta.realtime-v1"]},
]


@pytest.mark.parametrize("shown", BETA, ids=["header", "subprotocol"])
async def test_a_client_of_the_beta_is_told_once_what_to_change(shown: dict[str, Any]) -> None:
    async with serving(answering()) as service, service.dial("model=m", **shown) as line:
        error = await hear(line)
        assert (error["type"], error["error"]["type"]) == ("error", "invalid_request_error")
        assert error["event_id"]
        assert error["error"]["code"] == "beta_api_shape_disabled"
        assert "OpenAI-Beta: realtime=v1" in error["error"]["message"]
        with pytest.raises(ConnectionClosed):
            await hear(line)
        assert (line.close_code, line.close_reason) == (1008, "beta_api_shape_disabled")


OTHERS = {
    "/v1/realtime?duplex=1": (update(), "session.created"),
    "/v1/realtime?duplex=1&dialect=ga": (update(), "session.created"),
    "/v1/duplex": (update(), "session.created"),
    "/v1/live/sessions": (client("session.start", session={"model": "any"}), "session.started"),
}
"""What opens a session on the other wires, and what it is answered with."""


@pytest.mark.parametrize("shown", BETA, ids=["header", "subprotocol"])
@pytest.mark.parametrize("target", OTHERS)
async def test_the_other_wires_do_not_mind_the_beta(target: str, shown: dict[str, Any]) -> None:
    opening, answer = OTHERS[target]
    async with (
        serving(answering()) as service,
        connect(f"ws://127.0.0.1:{service.port}{target}", **shown) as line,
    ):
        await line.send(opening)
        assert (await hear(line))["type"] == answer
