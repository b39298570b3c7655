"""Nothing that anybody said, wrote or showed as a key is in a log line or in a story."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from serve_app.gateway.secret_routes import SECRETS_PATH
from serve_app.logs.process_logs import PACKAGES, JsonFormatter, TextFormatter
from session.config import SessionLimits
from session.errors import StageFailed
from tests.fakes.server import Service, hear, serving, until
from tests.fakes.stages import answering
from tests.fakes.wire import append_bytes, client, update
from tests.support.marked import MARK, SECOND, conversation, said, traces

KEY = f"sk-{MARK}-key"
BEARER: dict[str, Any] = {"additional_headers": {"Authorization": f"Bearer {KEY}"}}
ADMIN = "admin-key"
KEYED: dict[str, Any] = {
    **{"api_keys": (KEY,), "admin_keys": (ADMIN,), "allow_unauthenticated": False},
}


class Kept(logging.Handler):
    """Keeps every line in both forms, and all else that its record has."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        rest = {name: value for name, value in vars(record).items() if name != "exc_info"}
        forms = (JsonFormatter().format(record), TextFormatter().format(record))
        self.lines.append("\n".join([*forms, repr(rest)]))


@pytest.fixture
def kept() -> Iterator[Kept]:
    """Listen to all of our loggers, at DEBUG."""
    handler = Kept()
    loggers = [logging.getLogger(name) for name in PACKAGES]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
    yield handler
    for logger, level in zip(loggers, levels, strict=True):
        logger.removeHandler(handler)
        logger.setLevel(level)


async def stories(service: Service) -> str:
    """Return everything that an operator can ask for."""
    bearer = {"Authorization": f"Bearer {ADMIN}"}
    told = (await service.get("/admin/sessions", **bearer)).body
    assert told["open"] or told["ended"]
    pages = [json.dumps(told)]
    for session in [*told["open"], *told["ended"]]:
        answer = await service.get(f"/admin/sessions/{session['id']}", **bearer)
        assert answer.status == 200
        pages.append(json.dumps(answer.body))
    return "\n".join(pages)


async def converse(line: ClientConnection) -> str:
    """Have the whole marked conversation; return the session's resume token."""
    token = ""
    for text, event in conversation():
        await line.send(text)
        for heard in await until(line, event) if event else []:
            if heard["type"] == "session.created":
                token = heard["resume_token"]
    assert token
    return token


async def test_nothing_of_a_conversation_is_written(kept: Kept) -> None:
    limits = SessionLimits(disconnect_grace_s=30)
    async with serving(answering(), limits=limits, **KEYED) as service:
        async with service.dial(f"duplex=1&{MARK}={MARK}", **BEARER) as line:
            token = await converse(line)
        await service.idle()
        written, told = "\n".join(kept.lines), await stories(service)
    for stimulus in ("AudioAppended", "ItemCreated", "ResponseRequested", "EventRefused"):
        assert f'"stimulus": "{stimulus}"' in written
        assert stimulus in told
    assert '"reason": "other"' in written
    assert traces(written, KEY, token, ADMIN) == traces(told, KEY, token, ADMIN) == []


async def test_nothing_of_troubles_is_written(kept: Kept) -> None:
    directory = answering(max_sessions=3)
    async with serving(directory, **KEYED) as service:
        async with service.dial(**BEARER) as line:
            await line.send(update(extra_body={"auto_response": True}))
            await until(line, "session.updated")
            directory.knobs.fail_next("append", StageFailed(f"the model failed at {MARK}"))
            await line.send(append_bytes(SECOND))
            assert MARK in (await until(line, "error"))[-1]["error"]["message"]
        async with service.dial(**BEARER) as line:
            await line.send(update())
            await until(line, "session.updated")
            directory.knobs.fail_next("configure", KeyError(MARK))
            await line.send(update(temperature=0.5))
            await until(line, "error")
        await service.idle()
        told = await stories(service)
        with pytest.raises(InvalidStatus):
            async with service.dial(additional_headers={"Authorization": f"Bearer {MARK}"}):
                pass
        async with service.dial(f"duplex=1&dialect={MARK}", **BEARER) as line:
            await line.wait_closed()
        async with service.dial(**BEARER) as line:
            await line.send(f"{{{MARK}")
            await until(line, "error")
            resume = {"session_id": MARK, "resume_token": MARK}
            await line.send(client("session.resume", **resume))
            await until(line, "error")
        written = "\n".join(kept.lines)
    for sentence in ("a unit failed", "session broke", "turned away at the door"):
        assert sentence in written
    assert "KeyError" in written
    assert traces(written, KEY) == traces(told, KEY) == []


async def test_nothing_is_written_in_the_other_dialects(kept: Kept) -> None:
    async with serving(answering(max_sessions=2), **KEYED) as service:
        session = {"type": "realtime", "instructions": f"Be {MARK}."}
        made = await service.post(
            SECRETS_PATH, json.dumps({"session": session}).encode(), Authorization=f"Bearer {KEY}"
        )
        secret = made.body["value"]
        shown = {"Authorization": f"Bearer {secret}"}
        async with service.dial(f"model={MARK}", additional_headers=shown) as line:
            await until(line, "session.created")
            await line.send(client("session.update", session=session))
            await until(line, "session.updated")
            await line.send(said(f"I am {MARK}"))
            await line.send(client("response.create", response={"metadata": {MARK: MARK}}))
            await until(line, "response.done")
        url = f"ws://127.0.0.1:{service.port}/v1/live/sessions"
        async with connect(url, max_size=None, compression=None, **BEARER) as line:
            started = {"model": "gpt-live-1", "instructions": f"Be {MARK}."}
            await line.send(client("session.start", session=started))
            assert (await hear(line))["type"] == "session.started"
        await service.idle()
        written, told = "\n".join(kept.lines), await stories(service)
    assert '"dialect": "openai"' in written
    assert '"dialect": "live"' in written
    assert traces(written, KEY, secret) == traces(told, KEY, secret) == []


def test_content_would_be_found(kept: Kept) -> None:
    log = logging.getLogger("serve_app.leaky")
    log.debug("heard %s", SECOND[:60])
    log.debug("sent %s", append_bytes(SECOND[1:]))
    log.debug("said", extra={"text": f"I am {MARK.upper()}"})
    assert [len(traces(line)) > 0 for line in kept.lines] == [True] * 3
