"""Who may ask for what stands under /admin/, over real HTTP."""

import json
from pathlib import Path
from typing import Any

import pytest

from serve_app.access.admin_door import AdminDoor
from serve_app.access.key_ring import KeyRing
from serve_app.gateway.secret_routes import SECRETS_PATH
from serve_app.metrics.definitions import DOOR_REFUSALS
from tests.fakes.server import Answer, serving
from tests.fakes.stages import answering

NOWHERE = "/admin/nowhere"
"""Answered with 404 by who may ask, so that the door is seen whatever stands behind it."""
KEYED: dict[str, Any] = {"api_keys": ("client",), "allow_unauthenticated": False}
ADMIN: dict[str, Any] = {**KEYED, "admin_keys": ("root", "spare")}


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def seen(answer: Answer) -> tuple[int, str]:
    """Status and code of an answer that is an error and nothing else."""
    assert answer.body.keys() == {"error"}
    error = answer.body["error"]
    assert error["type"] == "invalid_request_error"
    return answer.status, error["code"]


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (bearer("root"), (404, "not_found")),
        (bearer("spare"), (404, "not_found")),
        ({}, (401, "invalid_api_key")),
        (bearer("wrong"), (401, "invalid_api_key")),
        (bearer("ek_secret"), (401, "invalid_api_key")),
        (bearer("client"), (403, "forbidden")),
    ],
)
async def test_an_admin_key_opens_and_no_other_does(
    headers: dict[str, str], expected: tuple[int, str]
) -> None:
    async with serving(answering(), **ADMIN) as service:
        answer = await service.get(NOWHERE, **headers)
        assert seen(answer) == expected
        if expected[0] != 404:
            assert "admin key" in answer.body["error"]["message"]
            assert service.meter.of(DOOR_REFUSALS) == {("http", str(expected[0])): 1}


async def test_a_client_secret_that_is_in_force_does_not_open_it() -> None:
    async with serving(answering(), **ADMIN) as service:
        made = await service.post(SECRETS_PATH, b"{}", **bearer("client"))
        assert seen(await service.get(NOWHERE, **bearer(made.body["value"])))[0] == 401


async def test_an_admin_key_is_no_api_key() -> None:
    async with serving(answering(), **ADMIN) as service:
        assert (await service.get("/v1/models", **bearer("root"))).status == 401
        assert (await service.post(SECRETS_PATH, b"{}", **bearer("root"))).status == 401


async def test_a_key_of_both_lists_is_an_api_key() -> None:
    both = {**ADMIN, "admin_keys": ("client",)}
    async with serving(answering(), **both) as service:
        assert (await service.get(NOWHERE, **bearer("client"))).status == 403
        assert (await service.get("/v1/models", **bearer("client"))).status == 200


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, (404, "")),
        (KEYED, (403, "can be reached from other machines")),
        ({"allow_unauthenticated": False}, (403, "can be reached from other machines")),
        ({"api_keys": ("client",)}, (403, "asks for API keys")),
    ],
)
async def test_without_admin_keys_only_a_service_that_asks_nobody_is_open(
    settings: dict[str, Any], expected: tuple[int, str]
) -> None:
    async with serving(answering(), **settings) as service:
        for headers in ({}, bearer("root")):
            answer = await service.get(NOWHERE, **headers)
            message = answer.body["error"]["message"]
            assert (answer.status, expected[1] in message) == (expected[0], True)
            if answer.status == 403:
                assert "DUPLEX_ADMIN_KEYS" in message
                assert "auth.admin_keys_file" in message


async def test_an_admin_key_is_asked_for_even_on_an_open_service() -> None:
    async with serving(answering(), admin_keys=("root",)) as service:
        assert (await service.get(NOWHERE)).status == 401
        assert (await service.get("/v1/models")).status == 200


async def test_admin_keys_work_where_clients_have_none() -> None:
    settings: dict[str, Any] = {"allow_unauthenticated": False, "admin_keys": ("root",)}
    async with serving(answering(), **settings) as service:
        assert (await service.get(NOWHERE, **bearer("root"))).status == 404
        assert (await service.get("/v1/models", **bearer("root"))).status == 403


@pytest.mark.parametrize("key", ["root", None])
async def test_a_page_from_elsewhere_can_change_nothing(key: str | None) -> None:
    settings = ADMIN if key else {}
    headers = {"Origin": "https://evil.example", **(bearer(key) if key else {})}
    async with serving(answering(), **settings) as service:
        answer = await service.post(NOWHERE, b"{}", **headers)
        assert seen(answer) == (403, "forbidden")
        assert "allowed_origins" in answer.body["error"]["message"]


def test_a_file_of_admin_keys_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    door = AdminDoor(KeyRing(file=file), api_keys=KeyRing(["client"]), is_local=False)
    asked = {"authorization": "Bearer root"}
    refusal = door.refuse(asked)
    assert refusal is not None
    assert refusal.status == 403
    file.write_text("root\n")
    assert door.refuse(asked) is None
    file.write_text("another-key\n")
    refusal = door.refuse(asked)
    assert refusal is not None
    assert refusal.status == 401


async def test_what_is_not_there_is_told_so_in_json() -> None:
    async with serving(answering()) as service:
        for answer in (
            await service.get("/admin/"),
            await service.get(NOWHERE),
            await service.post(NOWHERE, json.dumps({}).encode()),
        ):
            assert seen(answer) == (404, "not_found")


@pytest.mark.parametrize("written", [None, "", "# rotated monthly\n"])
@pytest.mark.parametrize("name", ["api_keys_file", "admin_keys_file"])
async def test_a_file_without_a_key_in_it_shuts_the_door(
    name: str, written: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "keys"
    if written is not None:
        file.write_text(written)
    settings: dict[str, Any] = {name: file}
    async with serving(answering(), **settings) as service:
        for answer in (await service.get(NOWHERE), await service.post("/admin/drain", b"")):
            assert seen(answer) == (403, "forbidden")
            assert "admin_keys_file" in answer.body["error"]["message"]
        expected = 403 if name == "api_keys_file" else 200
        assert (await service.get("/v1/models")).status == expected


@pytest.mark.parametrize("name", ["api_keys_file", "admin_keys_file"])
async def test_a_file_that_is_emptied_shuts_the_door(name: str, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("s3cret\n")
    path = "/v1/models" if name == "api_keys_file" else "/admin/sessions"
    settings: dict[str, Any] = {name: file}
    async with serving(answering(), **settings) as service:
        assert (await service.get(path)).status == 401
        assert (await service.get(path, **bearer("s3cret"))).status == 200
        file.write_bytes(b"")
        for headers in ({}, bearer("s3cret")):
            assert seen(await service.get(path, **headers)) == (403, "forbidden")
            assert (await service.post("/admin/drain", b"", **headers)).status == 403
        file.write_text("n3w\n")
        assert (await service.get(path)).status == 401
        assert (await service.get(path, **bearer("n3w"))).status == 200
