"""The examples of docs/your_client.md run as they stand there, but for the address."""

import asyncio
import re
import sys
from pathlib import Path

import pytest

from tests.support.node import run_node
from tests.support.tls_front import TlsFront

PAGE = Path(__file__).parents[2] / "docs" / "your_client.md"
PLAIN, SECURE = "127.0.0.1:8000", "localhost:8443"
WAIT_S = 60.0
EXPECTED = {
    "`openai` for Python": "five",
    "`openai` for Python, full duplex": "session.closed",
    "`openai-agents` for Python": "bytes of sound",
    "`openai` for JavaScript": "five",
    "`@openai/agents-realtime`": "five",
    "Any WebSocket": "five",
}
"""What each example of the page writes, by its heading."""


def examples() -> dict[str, tuple[str, str]]:
    """Return the language and the text of each example, by its heading."""
    found = {}
    for section in PAGE.read_text().split("\n## ")[1:]:
        heading = section.partition("\n")[0]
        for language, text in re.findall(r"^```(python|js)\n(.*?)^```", section, re.M | re.S):
            assert heading not in found
            found[heading] = (language, text)
    return found


def test_every_example_is_run() -> None:
    assert set(examples()) == set(EXPECTED)


@pytest.mark.parametrize("heading", EXPECTED)
def test_an_example_is_short_and_names_the_usual_address(heading: str) -> None:
    _, text = examples()[heading]
    assert (PLAIN in text) is not (SECURE in text)
    assert len(text.splitlines()) <= 26


@pytest.mark.clients
@pytest.mark.parametrize("heading", [h for h, (lang, _) in examples().items() if lang == "python"])
async def test_a_python_example_works(heading: str, address: str) -> None:
    program = examples()[heading][1].replace(PLAIN, address)
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(WAIT_S):
        said, complaints = await running.communicate()
    assert running.returncode == 0, complaints.decode()
    assert EXPECTED[heading] in said.decode().lower()


@pytest.mark.clients
@pytest.mark.parametrize("heading", [h for h, (lang, _) in examples().items() if lang == "js"])
async def test_a_javascript_example_works(heading: str, secure: TlsFront) -> None:
    program = examples()[heading][1].replace(SECURE, secure.address)
    environment = {"NODE_EXTRA_CA_CERTS": str(secure.authority)}
    ran = await run_node(program, environment=environment)
    assert (ran.status, ran.complaints) == (0, "")
    assert EXPECTED[heading] in " ".join(ran.lines).lower()
