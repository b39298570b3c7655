"""A page in a real browser comes in with a client secret, which it offers as a subprotocol."""

import json
from typing import Any

import pytest

from serve_app.gateway.secret_routes import SECRETS_PATH
from tests.browser.browsers import open_page
from tests.fakes.server import serving
from tests.fakes.stages import answering

pytestmark = [pytest.mark.browser]

DIAL = """([url, value]) => new Promise((resolve) => {
  const socket = new WebSocket(url, ["realtime", `openai-insecure-api-key.${value}`]);
  socket.onmessage = ({ data }) => {
    resolve({ protocol: socket.protocol, event: JSON.parse(data) });
    socket.close();
  };
  socket.onclose = ({ code }) => resolve({ code });
})"""


async def test_a_page_opens_the_openai_wire_with_a_client_secret() -> None:
    session = {"type": "realtime", "instructions": "Be brief."}
    keyed: dict[str, Any] = {"api_keys": ("right",), "allow_unauthenticated": False}
    async with serving(answering(), **keyed) as service:
        body = json.dumps({"session": session}).encode()
        made = await service.post(SECRETS_PATH, body, Authorization="Bearer right")
        target = f"ws://127.0.0.1:{service.port}/v1/realtime?model=any"
        async with open_page(f"http://127.0.0.1:{service.port}/") as page:
            opened = await page.evaluate(DIAL, [target, made.body["value"]])
            assert opened["protocol"] == "realtime"
            assert opened["event"]["type"] == "session.created"
            assert opened["event"]["session"]["instructions"] == "Be brief."
            # A browser does not tell a page why its handshake was refused.
            assert await page.evaluate(DIAL, [target, "ek_unknown"]) == {"code": 1006}
