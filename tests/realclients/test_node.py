"""Clients in JavaScript, unmodified, on Node, through TLS: `openai` speaks nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.realclients.sentences import said
from tests.support.node import run_node
from tests.support.realtime_log import RealtimeLog
from tests.support.speech import normalise
from tests.support.tls_front import TlsFront

pytestmark = pytest.mark.clients

HERE = Path(__file__).parent / "node"
Json = dict[str, Any]


def recordings(folder: Path, *sentences: str) -> list[str]:
    """Write sentences as sound; return the files."""
    files = []
    for number, sentence in enumerate(sentences):
        file = folder / f"{number}.pcm"
        file.write_bytes(said(sentence))
        files.append(str(file))
    return files


def judged(frames: list[Json]) -> RealtimeLog:
    """Read a conversation."""
    log = RealtimeLog()
    for frame in frames:
        log.hear(json.dumps(frame))
    return log


async def run(name: str, secure: TlsFront, files: list[str]) -> list[Json]:
    """Run one of the programs; return what it told, line by line."""
    ran = await run_node(
        (HERE / name).read_text(),
        secure.address,
        *files,
        environment={"NODE_EXTRA_CA_CERTS": str(secure.authority)},
    )
    assert (ran.status, ran.complaints) == (0, "")
    return [json.loads(line) for line in ran.lines]


async def test_openai_asks_and_cancels(secure: TlsFront, tmp_path: Path) -> None:
    files = recordings(tmp_path, "What is twelve times nine?", "Count from one to one hundred.")
    log = judged(await run("openai_turns.mjs", secure, files))
    assert log.faults == []
    first, second = (event["response"] for event in log.of("response.done"))
    assert first["status"] == "completed"
    assert "108" in normalise(first["output"][0]["content"][0]["transcript"])
    assert second["status"] == "cancelled"
    assert second["status_details"]["reason"] == "client_cancelled"


async def test_agents_are_interrupted_and_use_a_tool(secure: TlsFront, tmp_path: Path) -> None:
    files = recordings(
        tmp_path,
        "What is twelve times nine?",
        "Count from one to one hundred.",
        "Thank you, that is enough.",
        "What is the weather in Paris?",
    )
    told = await run("agents_talk.mjs", secure, files)
    noticed = [line for line in told if "noticed" in line]
    assert [line for line in noticed if line["noticed"] == "error"] == []
    (end,) = (line for line in noticed if line["noticed"] == "agent_tool_end")
    assert "Paris" in end["result"]
    assert [line["event"] for line in told if not line.get("isUnderstood", True)] == []
    log = judged([line["event"] for line in told if "event" in line])
    assert log.faults == []
    assert log.of("error") == []
    answers = [event["response"] for event in log.of("response.done")]
    assert "108" in normalise(answers[0]["output"][0]["content"][0]["transcript"])
    assert [a["status_details"]["reason"] for a in answers if a["status"] == "cancelled"] == [
        "turn_detected"
    ]
