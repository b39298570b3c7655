"""Whatever path, method or parameter is wrong, the answer is one error in our shape."""

import pytest

from tests.fakes.server import serving
from tests.fakes.stages import answering


async def no_pages() -> list[str]:
    return []


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("OPTIONS", "/admin/drain", (405, "method_not_allowed", None)),
        ("TRACE", "/admin/drain", (405, "method_not_allowed", None)),
        ("PUT", "/admin/sessions", (405, "method_not_allowed", None)),
        ("OPTIONS", "/admin/nowhere", (404, "not_found", None)),
        ("PUT", "/v1/models", (405, "method_not_allowed", None)),
        ("DELETE", "/v1/realtime/client_secrets", (405, "method_not_allowed", None)),
        ("TRACE", "/metrics", (405, "method_not_allowed", None)),
        ("POST", "/index.html", (405, "method_not_allowed", None)),
        ("GET", "/nowhere.html", (404, "not_found", None)),
        ("GET", "/v1/nowhere", (404, "not_found", None)),
        ("GET", "/metrics?all=x", (400, "invalid_value", "all")),
    ],
)
async def test_what_is_wrong_gets_one_error_in_our_shape(
    method: str, path: str, expected: tuple[int, str, str | None]
) -> None:
    async with serving(answering(), read_exporters=no_pages) as service:
        answer = await service.ask(method, path)
        assert answer.body.keys() == {"error"}
        error = answer.body["error"]
        assert (answer.status, error["code"], error["param"]) == expected
        assert error["type"] == "invalid_request_error"
        assert error["message"]


async def test_a_head_of_an_operator_s_path_says_what_it_takes() -> None:
    async with serving(answering()) as service:
        answer = await service.ask("HEAD", "/admin/sessions")
        assert (answer.status, answer.headers["allow"]) == (405, "GET")
