"""Pages of strangers whose name leads to this machine, and pages of other local ports."""

from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from serve_app.access.page_origins import PageOrigins
from serve_app.gateway.admin_routes import DRAIN_PATH
from serve_app.gateway.draining import DrainState
from serve_app.gateway.metrics_route import METRICS_PATH
from serve_app.gateway.secret_routes import SECRETS_PATH
from tests.fakes.server import Service, serving
from tests.fakes.stages import answering

STRANGERS = (
    "evil.example",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "192.168.0.7",
    "0.0.0.0",
)
OURS = ("localhost", "app.localhost", "127.0.0.1", "127.8.9.10", "[::1]", "app.example")
ALLOWED = ("https://app.example/",)
SOCKETS = ("/v1/realtime?duplex=1", "/v1/duplex", "/v1/live/sessions")


async def socket_status(service: Service, path: str, headers: dict[str, str]) -> int:
    """Dial with headers of one's own; return the status of the handshake."""
    # The library puts its own Host first, so the server is asked by the name itself.
    url = f"ws://{headers['Host']}{path}"
    others = {name: value for name, value in headers.items() if name != "Host"}
    try:
        async with connect(url, host="127.0.0.1", port=service.port, additional_headers=others):
            return 101
    except InvalidStatus as refused:
        return refused.response.status_code


@pytest.mark.parametrize("name", STRANGERS)
async def test_where_no_key_is_asked_for_a_stranger_s_name_opens_nothing(name: str) -> None:
    async with serving(answering(), allowed_origins=ALLOWED) as service:
        place = f"{name}:{service.port}"
        headers = {"Host": place, "Origin": f"http://{place}"}
        for shown in (headers, {"Host": place}, {"Host": place, "Authorization": "Bearer any"}):
            for method, path in (
                ("GET", "/admin/sessions"),
                ("POST", DRAIN_PATH),
                ("DELETE", DRAIN_PATH),
                ("GET", "/v1/models"),
                ("POST", SECRETS_PATH),
                ("GET", METRICS_PATH),
            ):
                answer = await service.ask(method, path, **shown)
                assert answer.status == 403, (method, path, shown)
                assert "localhost" in answer.body["error"]["message"]
            for path in SOCKETS:
                assert await socket_status(service, path, shown) == 403
        assert service.gateway.draining.state is DrainState.SERVING
        assert (await service.get("/health", Host=place)).status == 200, "a prober may ask"


@pytest.mark.parametrize("name", OURS)
async def test_our_own_names_open_what_they_did(name: str) -> None:
    async with serving(answering(), allowed_origins=ALLOWED) as service:
        place = f"{name}:{service.port}"
        headers = {"Host": place, "Origin": f"http://{place}"}
        for path in ("/admin/sessions", "/v1/models"):
            assert (await service.get(path, **headers)).status == 200
        assert (await service.post(DRAIN_PATH, b"", **headers)).status == 200
        assert (await service.ask("DELETE", DRAIN_PATH, **headers)).status == 200
        for path in SOCKETS:
            assert await socket_status(service, path, headers) == 101


async def test_where_keys_are_asked_for_any_name_will_do() -> None:
    settings: dict[str, Any] = {"api_keys": ("right",), "admin_keys": ("root",)}
    async with serving(answering(), **settings) as service:
        host = {"Host": "voice.example"}
        key, admin = {"Authorization": "Bearer right"}, {"Authorization": "Bearer root"}
        assert (await service.get("/v1/models", **host, **key)).status == 200
        assert (await service.get("/admin/sessions", **host, **admin)).status == 200
        assert await socket_status(service, SOCKETS[0], host | key) == 101


@pytest.mark.parametrize("settings", [{}, {"admin_keys": ("root",)}], ids=["open", "keyed"])
async def test_a_page_of_another_local_port_talks_and_does_not_operate(
    settings: dict[str, Any],
) -> None:
    async with serving(answering(), **settings) as service:
        headers = {"Host": f"localhost:{service.port}", "Origin": "http://localhost:9"}
        assert await socket_status(service, SOCKETS[0], headers) == 101
        assert (await service.post(SECRETS_PATH, b"{}", **headers)).status == 200
        for method in ("POST", "DELETE"):
            shown = headers | {"Authorization": "Bearer root"}
            answer = await service.ask(method, DRAIN_PATH, **shown)
            assert answer.status == 403
            assert "allowed_origins" in answer.body["error"]["message"]
        assert service.gateway.draining.state is DrainState.SERVING


@pytest.mark.parametrize(
    ("origin", "host", "expected"),
    [
        ("http://localhost:8000", "localhost:8000", True),
        ("http://LOCALHOST:8000", "localhost:8000", True),
        ("http://[::1]:8000", "[::1]:8000", True),
        ("https://voice.example", "voice.example", True),
        ("https://voice.example", "voice.example:443", True),
        ("http://voice.example:80", "voice.example", True),
        ("http://127.0.0.1:8000", "localhost:8000", False),
        ("http://localhost:8001", "localhost:8000", False),
        ("http://localhost", "localhost:8000", False),
        ("http://localhost:x", "localhost:8000", False),
        ("null", "localhost:8000", False),
        ("", "", False),
        ("file://", "localhost:8000", False),
        ("https://app.example", "localhost:8000", True),
    ],
)
def test_an_operator_s_page_is_of_the_same_host_and_port(
    origin: str, host: str, expected: bool
) -> None:
    assert PageOrigins(ALLOWED).may_operate(origin, host) is expected


@pytest.mark.parametrize("host", ["", ":8000", "[::1", "evil.example", "2130706433"])
def test_a_host_that_is_not_known_is_a_stranger_s(host: str) -> None:
    assert not PageOrigins(("null", *ALLOWED)).is_known_host(host)
