"""The door of a service that is served under a prefix, as Serve does with `route_prefix`."""

import json
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import pytest
from fastapi import FastAPI
from starlette.types import Message, Scope

from serve_app.gateway.api import build_api
from serve_app.gateway.draining import Draining, DrainState
from serve_app.gateway.gateway import Gateway
from serve_app.gateway.secret_routes import SECRETS_PATH
from serve_app.settings import GatewaySettings
from session.config import SessionLimits
from tests.fakes.stages import ScriptedDirectory

PREFIXES: Final = ("", "/svc", "/svc/v1", "/admin", "/health/live", "/metrics")
NO_KEY: Final[dict[str, str]] = {}
API_KEY: Final = {"Authorization": "Bearer sk"}
ADMIN_KEY: Final = {"Authorization": "Bearer root"}
every_prefix = pytest.mark.parametrize("prefix", PREFIXES)


def keyed() -> tuple[FastAPI, Draining]:
    """Return a service that asks for keys, and its drain."""
    directory = ScriptedDirectory()

    async def found() -> ScriptedDirectory:
        return directory

    async def no_pages() -> list[Any]:
        return []

    settings = GatewaySettings(
        limits=SessionLimits(), api_keys=("sk",), admin_keys=("root",), debug=True
    )
    gateway = Gateway(settings, found, read_exporters=no_pages)
    return build_api(gateway), gateway.draining


@dataclass(frozen=True)
class Answer:
    """What the service answered."""

    status_code: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


async def ask(api: FastAPI, prefix: str, method: str, path: str, headers: dict[str, str]) -> Answer:
    """Ask below a prefix, with the scope that Serve's proxy gives."""
    return await ask_at(api, prefix, method, prefix + path, headers)


async def ask_at(
    api: FastAPI, prefix: str, method: str, path: str, headers: dict[str, str]
) -> Answer:
    """Ask for a path as it is; `%0A` and the like in it are read as a server reads them."""
    named = {"Host": "server.example"} | headers
    scope: Scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "root_path": prefix,
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in named.items()],
        "client": ("127.0.0.1", 1),
        "server": ("server.example", 80),
    }
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await api(scope, receive, send)
    start, *parts = sent
    answered = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], answered, b"".join(part.get("body", b"") for part in parts))


async def dial(api: FastAPI, prefix: str, path: str, headers: dict[str, str]) -> int | None:
    """Ask for a WebSocket; return the status of the refusal, None when it was accepted."""
    scope: Scope = {
        "type": "websocket",
        "path": path,
        "root_path": prefix,
        "query_string": b"duplex=1",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "subprotocols": [],
        "extensions": {"websocket.http.response": {}},
    }
    sent: list[Message] = []
    heard: list[Message] = [{"type": "websocket.connect"}]

    async def receive() -> Message:
        return heard.pop() if heard else {"type": "websocket.disconnect", "code": 1000}

    async def send(message: Message) -> None:
        sent.append(message)

    await api(scope, receive, send)
    return sent[0].get("status")


@every_prefix
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/admin/sessions"),
        ("GET", "/admin/drain"),
        ("POST", "/admin/drain"),
        ("DELETE", "/admin/drain"),
        ("GET", "/admin/nowhere"),
        ("GET", "/v1/models"),
        ("POST", SECRETS_PATH),
        ("GET", "/debug/timings"),
        ("GET", "/metrics"),
    ],
)
async def test_what_needs_a_key_needs_it_below_every_prefix(
    prefix: str, method: str, path: str
) -> None:
    api, draining = keyed()
    right, wrong = (ADMIN_KEY, API_KEY) if path.startswith("/admin/") else (API_KEY, ADMIN_KEY)
    statuses = [
        (await ask(api, prefix, method, path, headers)).status_code for headers in (NO_KEY, wrong)
    ]
    assert statuses == [401, 403 if wrong == API_KEY else 401]
    assert draining.state is DrainState.SERVING
    known = 404 if path.endswith("nowhere") else 200
    assert (await ask(api, prefix, method, path, right)).status_code == known


@every_prefix
async def test_what_needs_no_key_needs_none_below_every_prefix(prefix: str) -> None:
    api, _ = keyed()
    assert (await ask(api, prefix, "GET", "/health/live", NO_KEY)).status_code == 200
    assert (await ask(api, prefix, "GET", "/health", NO_KEY)).status_code == 200


@every_prefix
async def test_a_page_from_elsewhere_changes_nothing_below_every_prefix(prefix: str) -> None:
    api, draining = keyed()
    headers = ADMIN_KEY | {"Origin": "https://evil.example"}
    assert (await ask(api, prefix, "POST", "/admin/drain", headers)).status_code == 403
    assert draining.state is DrainState.SERVING


@every_prefix
async def test_sockets_need_their_key_below_every_prefix(prefix: str) -> None:
    api, _ = keyed()
    for path in ("/v1/realtime", "/v1/duplex", "/v1/live/sessions"):
        assert await dial(api, prefix, prefix + path, NO_KEY) == 401
        assert await dial(api, prefix, prefix + path, API_KEY) is None
    assert await dial(api, prefix, f"{prefix}/admin/drain", ADMIN_KEY) == 404


async def test_what_does_not_lie_below_the_prefix_is_nowhere() -> None:
    api, draining = keyed()
    for path in ("/admin/drain", "/svcadmin/drain", "/health/live", "/SVC/admin/drain"):
        answer = await ask_at(api, "/svc", "POST", path, ADMIN_KEY)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
        assert await dial(api, "/svc", path, API_KEY) == 404
    assert await dial(api, "/svc", "/v1/realtime", API_KEY) == 404
    assert draining.state is DrainState.SERVING


@every_prefix
@pytest.mark.parametrize("end", ["%0A", "%00", "%0D", "%7F", "%C2%85"])
async def test_a_path_with_a_control_character_is_nowhere(prefix: str, end: str) -> None:
    api, draining = keyed()
    answer = await ask(api, prefix, "POST", f"/admin/drain{end}", ADMIN_KEY)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    assert draining.state is DrainState.SERVING
    assert (await ask(api, prefix, "GET", f"/v1/models{end}", API_KEY)).status_code == 404
    assert await dial(api, prefix, f"{prefix}/v1/realtime\n", API_KEY) == 404


@every_prefix
async def test_refusals_name_paths_below_the_prefix(prefix: str) -> None:
    api, _ = keyed()
    wrong = await ask(api, prefix, "PUT", "/admin/drain", ADMIN_KEY)
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "DELETE, GET, POST")
    gone = await ask(api, prefix, "POST", "/v1/realtime/calls", API_KEY)
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "not_found")
