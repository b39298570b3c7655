"""What the documents show of the client is true."""

import json
import re
import textwrap
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from clients import events as ev
from clients.duplex import DuplexClient
from clients.parse import parse_event
from clients.playback import PlaybackClock
from clients.session_config import base_settings
from clients.synthetic import RATE_HZ, speech_like
from clients.talk import build_parser
from clients.wav import Recording, to_pcm16, write_wav
from tests.fakes.server import serving
from tests.fakes.stages import ScriptedDirectory

DOCS = Path(__file__).parents[2] / "docs"
WORDS = {"type": "input_text", "text": "How is the weather?"}
QUESTION = {
    "type": "conversation.item.create",
    "item": {"type": "message", "role": "user", "content": [WORDS]},
}


def json_examples(text: str) -> list[dict[str, Any]]:
    blocks = re.findall(r"^```json\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    decoder = json.JSONDecoder()
    examples = []
    for block in blocks:
        rest = block.strip()
        while rest:
            example, end = decoder.raw_decode(rest)
            examples.append(example)
            rest = rest[end:].strip()
    return examples


async def test_the_twenty_lines_work(tmp_path: Path) -> None:
    page = (DOCS / "clients.md").read_text(encoding="utf-8")
    block = re.search(r"^```python\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE)
    assert block
    names: dict[str, Any] = {}
    exec(compile(block[1], "docs/clients.md", "exec"), names)
    ask: Callable[[str, Path], Awaitable[str]] = names["ask"]
    question = tmp_path / "question.wav"
    write_wav(question, Recording(to_pcm16(speech_like(0.9)), RATE_HZ))
    async with serving(ScriptedDirectory(sentence="Yes.", sentences=1)) as service:
        url = f"ws://127.0.0.1:{service.port}/v1/realtime?duplex=1"
        assert await ask(url, question) == "Yes."


def fragments(heading: str) -> list[str]:
    """Return the parts of the example below a heading of the client's page, cut at its dots."""
    page = (DOCS / "clients.md").read_text(encoding="utf-8")
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    [block] = re.findall(r"^```python\n(.*?)^```", section, flags=re.DOTALL | re.MULTILINE)
    return str(block).split("...\n")


async def run(fragment: str, names: dict[str, Any]) -> None:
    """Run lines of an example that wait for something; what they name is in `names` afterwards."""
    lines = textwrap.indent(fragment, "    ")
    source = f"async def example():\n{lines}\n    globals().update(locals())\n"
    exec(compile(source, "docs/clients.md", "exec"), names)
    await names["example"]()


async def test_the_example_of_a_tool_works() -> None:
    settings: dict[str, Any] = base_settings()
    names: dict[str, Any] = {"settings": settings, "FunctionCalled": ev.FunctionCalled}
    told, asked = fragments("Tools")
    exec(told, names)
    async with serving(ScriptedDirectory(sentence="Mild.", sentences=1)) as service:
        url = f"ws://127.0.0.1:{service.port}/v1/realtime?duplex=1"
        async with DuplexClient(url, settings) as client:
            names["client"] = client
            await client.send(QUESTION)
            await run(asked, names)
    assert names["call"].name == "look_up"
    assert (names["answer"].status, names["answer"].transcript) == ("completed", "Mild.")


async def test_the_example_of_playback_works() -> None:
    made, acknowledged = fragments("How much was heard")
    async with serving(ScriptedDirectory(sentence="Mild.", sentences=1)) as service:
        names: dict[str, Any] = {
            "PlaybackClock": PlaybackClock,
            "DuplexClient": DuplexClient,
            "url": f"ws://127.0.0.1:{service.port}/v1/realtime?duplex=1",
            "settings": base_settings(),
            # An hour later all that came has been heard.
            "time": SimpleNamespace(monotonic=lambda: time.monotonic() + 3600),
        }
        exec(made, names)
        client: DuplexClient = names["client"]
        async with client:
            heard = client.expect(ev.PlaybackAcknowledged)
            await client.send(QUESTION)
            answer = await (await client.create_response()).wait_done()
            await run(acknowledged, names)
            assert (await heard).played_ms == len(answer.audio) // 48


def test_every_server_event_of_the_wire_page_is_known() -> None:
    _, _, server_side = (
        (DOCS / "wire.md").read_text(encoding="utf-8").partition("\n## What the server says\n")
    )
    examples = json_examples(server_side)
    events = [parse_event(json.dumps(example), received_s=0.0) for example in examples]
    assert len(events) > 35
    assert [event.type for event in events if isinstance(event, ev.UnknownEvent)] == []


def test_options_of_the_talk_page_exist() -> None:
    page = (DOCS / "clients.md").read_text(encoding="utf-8")
    talk = page.partition("\n## Talk\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"--[a-z][a-z-]+", talk))
    assert named
    assert named <= set(build_parser().format_help().replace(",", " ").split()) | {"--in"}
