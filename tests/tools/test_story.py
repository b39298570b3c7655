"""The terminal's view of sessions, against a gateway that runs."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.server import serving, until
from tests.fakes.stages import answering
from tests.fakes.wire import append, client, update
from tools.story import main

AUTO: dict[str, Any] = {"extra_body": {"auto_response": True}}


async def test_a_list_and_a_timeline(capsys: pytest.CaptureFixture[str]) -> None:
    async with serving(answering(), admin_keys=("secret",)) as service:
        url = f"http://127.0.0.1:{service.port}"
        environ = {"DUPLEX_ADMIN_KEYS": "secret,old"}

        async def show(*arguments: str) -> tuple[int, str]:
            status = await asyncio.to_thread(main, ["--url", url, *arguments], environ)
            return status, capsys.readouterr().out

        assert await show() == (0, "no session is open, and none has ended yet\n")
        async with service.dial() as line:
            await line.send(update(**AUTO))
            created = (await until(line, "session.created"))[-1]
            session_id = created["session"]["id"]
            await line.send(append(1_000))
            await until(line, "response.done")
            assert f"{session_id}  active  began " in (await show())[1]
            await line.send(client("session.close"))
            await until(line, "session.closed")
        await service.idle()
        status, told = await show(session_id)
        first, stages, *entries = told.splitlines()
        assert status == 0
        assert f"{session_id}  ended (client_close)  began " in first
        assert "duplex  anyone  units" in first
        assert stages == "  Stage0 at hearing, Stage1 at speaking"
        assert entries[0].split()[:4] == ["1", "0.000", "[0.0.0]", "OpenRequested"]
        heard = next(entry for entry in entries if "AudioAppended" in entry)
        assert "1000 ms  -> SubmitUnit" in heard
        assert entries[-1].endswith("client_close  -> SessionClosed, CloseSocket")
        _, part = await show(session_id, "--limit", "2")
        assert f"  {len(entries) - 2} earlier entries are not shown" in part.splitlines()
        assert part.splitlines()[-2:] == entries[-2:]


async def test_what_can_not_be_shown_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "keys"
    file.write_text("secret\n")
    async with serving(answering(), admin_keys=("secret",)) as service:
        url = f"http://127.0.0.1:{service.port}"
        assert await asyncio.to_thread(main, ["--url", url], {}) == 1
        assert capsys.readouterr().err.startswith("401: ")
        keyed = ["--url", url, "--key-file", str(file)]
        assert await asyncio.to_thread(main, [*keyed, "sess_none"], {}) == 1
        assert "session_not_found" in capsys.readouterr().err
    assert main(["--url", url], {}) == 1
    assert "does not answer" in capsys.readouterr().err
