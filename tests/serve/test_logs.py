"""The log files on real Ray: each process of ours has one, and no content is in any file."""

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect

from serve_app.logs.process_logs import FOLDER
from tests.fakes.server import until
from tests.support.marked import conversation, traces
from tests.support.serve_cluster import ServeCluster


@pytest.fixture(scope="module")
def older(cluster: ServeCluster) -> frozenset[Path]:
    """Return what others have left on the node that all share; they need not have written JSON."""
    return frozenset(ray_logs(cluster))


@pytest.fixture(scope="module")
def service(cluster: ServeCluster, older: frozenset[Path]) -> Iterator[ServeCluster]:
    del older  # read before anything is deployed
    settings = {"sentences": 1, "speak_at_units": [1]}
    logs = {"encoding": "json", "level": "DEBUG"}
    cluster.deploy("scripted.yaml", {"model_settings": settings, "logs": logs})
    yield cluster
    cluster.delete()


def ray_logs(service: ServeCluster) -> list[Path]:
    """Return every log file of the node, Ray's own too."""
    folder = Path(service.folder) / "session_latest" / "logs"
    return [path for path in folder.rglob("*") if path.is_file()]


def get(service: ServeCluster, path: str) -> Any:
    with urllib.request.urlopen(f"http://{service.address}{path}", timeout=30) as answer:
        return json.loads(answer.read())


async def ended(service: ServeCluster, session_id: str) -> Any:
    """Wait for a session's record, which is written when everything of it has ended."""
    while True:
        told = await asyncio.to_thread(get, service, "/admin/sessions")
        for one in told["ended"]:
            if one["id"] == session_id:
                return one
        await asyncio.sleep(0.1)


def whole_lines(path: Path) -> list[str]:
    """Return the lines of a file but the one that is being written."""
    return path.read_text().rpartition("\n")[0].splitlines()


async def test_each_process_writes_json_and_nobody_writes_content(
    service: ServeCluster, older: frozenset[Path]
) -> None:
    token = session_id = ""
    url = f"ws://{service.address}/v1/realtime?duplex=1"
    async with connect(url, max_size=None, compression=None) as line:
        for text, event in conversation():
            await line.send(text)
            for heard in await until(line, event) if event else []:
                if heard["type"] == "session.created":
                    token, session_id = heard["resume_token"], heard["session"]["id"]
    assert token
    session = await ended(service, session_id)
    told = get(service, f"/admin/sessions/{session_id}")
    assert None not in (session["stage0_replica"], session["stage1_replica"])
    assert told["entries"][-1]["effects"] == ["SessionClosed", "CloseSocket"]

    files = ray_logs(service)
    own = [path for path in files if path.parent.name == FOLDER and path not in older]
    processes = {path.name.rpartition("_")[0] for path in own}
    assert {"gateway", "stage0", "stage1", "stage0_engine", "stage1_engine"} <= processes
    lines = [json.loads(line) for path in own for line in whole_lines(path)]
    mine = [line for line in lines if line.get("session") == session_id]
    said = [line["message"] for line in mine if line["level"] == "INFO"]
    assert said == ["session begun", "session ended"]
    assert {"AudioAppended", "ItemCreated"} <= {line.get("stimulus") for line in mine}
    for path in files:
        text = path.read_bytes().decode(errors="replace")
        assert traces(text, token) == [], path
    assert traces(json.dumps(told), token) == []
