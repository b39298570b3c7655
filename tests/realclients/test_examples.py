"""The examples of docs/your_client.md run as they stand there, but for the address."""

import asyncio
import re
import ssl
import sys
import wave
from pathlib import Path

import pytest
import trustme

from tests.realclients.sentences import RATE_HZ
from tests.support.node import run_node
from tests.support.speech import normalise, recognise, synthesise
from tests.support.tls_front import TlsFront
from tools.running_service import free_port

PAGE = Path(__file__).parents[2] / "docs" / "your_client.md"
PLAIN, SECURE = "127.0.0.1:8000", "localhost:8443"
RECORDED_HZ = 16_000
"""Another rate than the wire's, as the recordings of tests/data have it."""
WAIT_S = 150.0
"""Only a program that has gone wrong ever runs so long."""
FEW_LINES, MANY_LINES = 26, 60
EXPECTED = {
    "`openai` for Python": "five",
    "A spoken conversation": "forty two",
    "Being interrupted": "forty two",
    "`openai` for Python, full duplex": "forty two",
    "`openai-agents` for Python": "bytes of sound",
    "`openai` for JavaScript": "five",
    "`@openai/agents-realtime`": "five",
    "Any WebSocket": "five",
}
"""What each example of the page writes, by its heading."""

WHOLE = "A spoken conversation"
"""The example whose functions those in `GO_ON` use."""
GO_ON = ("Being interrupted", "`openai` for Python, full duplex")
SPOKEN = (WHOLE, *GO_ON)
FRONT = "TLS"
"""Serves instead of writing something."""

MULTIPLICATION = "How much is seven times six?"
QUESTIONS = {"Being interrupted": "Count from one to fifty."}
"""What question.wav asks, where it is not the multiplication."""


def examples() -> dict[str, tuple[str, str]]:
    """Return the language and the text of each example, by its heading."""
    found = {}
    for section in PAGE.read_text().split("\n## ")[1:]:
        heading = section.partition("\n")[0]
        for language, text in re.findall(r"^```(python|js)\n(.*?)^```", section, re.M | re.S):
            assert heading not in found
            found[heading] = (language, text)
    return found


def program_of(heading: str) -> str:
    """Return an example, with the functions that the page says it goes on from."""
    text = examples()[heading][1]
    if heading not in GO_ON:
        return text
    functions, _, rest = examples()[WHOLE][1].partition("async def main")
    assert rest
    return functions + text


def record(path: Path, sentence: str) -> None:
    """Write a sentence as a recording, with no more silence after it than a breath."""
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, RECORDED_HZ, 0, "NONE", ""))
        file.writeframes(synthesise(sentence, rate_hz=RECORDED_HZ))


async def run(program: str, folder: Path) -> str:
    """Run a Python program to its end; return what it has written."""
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(WAIT_S):
            written, complaints = await running.communicate()
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()
    assert (running.returncode, complaints.decode()) == (0, "")
    return written.decode()


def test_every_example_is_run() -> None:
    assert set(examples()) == {*EXPECTED, FRONT}


@pytest.mark.parametrize("heading", EXPECTED)
def test_an_example_is_short_and_names_the_usual_address(heading: str) -> None:
    _, text = examples()[heading]
    assert (PLAIN in text) is not (SECURE in text)
    assert len(text.splitlines()) <= (MANY_LINES if heading in SPOKEN else FEW_LINES)


@pytest.mark.clients
@pytest.mark.parametrize("heading", [h for h in EXPECTED if examples()[h][0] == "python"])
async def test_a_python_example_works(heading: str, address: str, tmp_path: Path) -> None:
    record(tmp_path / "question.wav", QUESTIONS.get(heading, MULTIPLICATION))
    record(tmp_path / "interruption.wav", MULTIPLICATION)
    written = await run(program_of(heading).replace(PLAIN, address), tmp_path)
    assert EXPECTED[heading] in written.lower().replace("-", " ")
    if "answer.wav" in program_of(heading):
        with wave.open(str(tmp_path / "answer.wav")) as file:
            assert file.getframerate() == RATE_HZ
            assert "42" in normalise(recognise(file.readframes(file.getnframes())))


@pytest.mark.clients
async def test_the_front_of_the_page_ends_tls(address: str, tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(
        tmp_path / "localhost.pem"
    )
    port = free_port()
    program = examples()[FRONT][1].replace("8443", str(port))
    program = program.replace("8000", address.rpartition(":")[2])
    running = await asyncio.create_subprocess_exec(sys.executable, "-c", program, cwd=tmp_path)
    try:
        context = ssl.create_default_context()
        authority.configure_trust(context)
        async with asyncio.timeout(WAIT_S):
            answer = await ask_for_life(port, context)
        assert answer.startswith(b"HTTP/1.1 200")
        assert running.returncode is None
    finally:
        running.terminate()
        await running.wait()


async def ask_for_life(port: int, context: ssl.SSLContext) -> bytes:
    """Return what the service behind the front says, once there is a front."""
    reader, writer = await connected(port, context)
    writer.write(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return answer


async def connected(
    port: int, context: ssl.SSLContext
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    while True:
        try:
            return await asyncio.open_connection("localhost", port, ssl=context)
        except ConnectionRefusedError:
            await asyncio.sleep(0.05)


@pytest.mark.clients
@pytest.mark.parametrize("heading", [h for h, (lang, _) in examples().items() if lang == "js"])
async def test_a_javascript_example_works(heading: str, secure: TlsFront) -> None:
    program = examples()[heading][1].replace(SECURE, secure.address)
    environment = {"NODE_EXTRA_CA_CERTS": str(secure.authority)}
    ran = await run_node(program, environment=environment)
    assert (ran.status, ran.complaints) == (0, "")
    assert EXPECTED[heading] in " ".join(ran.lines).lower()
