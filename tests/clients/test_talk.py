"""The talk program as its user meets it: arguments, files, lines and exit status."""

import asyncio
import io
import json
import socket
from pathlib import Path

import pytest

from clients.console import Console, bar, live_line
from clients.conversation import Progress
from clients.synthetic import speech_like
from clients.talk import main
from clients.wav import Recording, read_wav, to_pcm16, write_wav
from tests.clients.transcript_server import pcm, playing


@pytest.fixture
def question(tmp_path: Path) -> Path:
    path = tmp_path / "question.wav"
    write_wav(path, Recording(to_pcm16(speech_like(0.38)), 16_000))
    return path


async def run(*argv: object) -> int:
    return await asyncio.to_thread(main, [str(argument) for argument in argv])


async def test_it_writes_the_answer_the_timeline_and_a_report(
    question: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, timeline, report = (tmp_path / name for name in ("a.wav", "t.wav", "r.json"))
    async with playing("auto_reply", api_key="k") as server:
        status = await run(
            *("--url", server.url, "--api-key", "k", "--in", question, "--quiet-s", 0.3),
            *("--out", out, "--timeline", timeline, "--json", report),
        )
    assert status == 0
    assert read_wav(out) == Recording(pcm(400) + pcm(600), 24_000)
    plain = json.loads(report.read_text())
    assert plain["replies"][0]["transcript"] == "It is four o'clock."
    assert plain["made"]["versions"]["websockets"]
    assert plain["made"]["argv"][0] == "clients.talk"
    assert read_wav(timeline).seconds == pytest.approx(plain["seconds"], abs=0.002)
    lines = capsys.readouterr().out
    assert "user: What time is it?" in lines
    assert "assistant: It is four o'clock. [completed, 1.0 s]" in lines
    assert "\x1b" not in lines


async def test_a_refusal_is_one_line(question: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with playing("refused") as server:
        assert await run("--url", server.url, "--in", question) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        "talk: the server refused: resource_exhausted: all 1 sessions are taken; "
        "try again later; trying later may succeed"
    )


async def test_nobody_there_is_one_line(question: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"ws://127.0.0.1:{unused.getsockname()[1]}/"
        assert await run("--url", url, "--in", question) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"talk: can not connect to {url}")


async def test_no_answer_is_one_line_with_the_last_error(
    question: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with playing("silent") as server:
        status = await run("--url", server.url, "--in", question, "--reply-timeout-s", 0.3)
    assert status == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        "talk: no reply came; the last error was stage_failed: the model failed on this unit"
    )


async def test_a_broken_conversation_is_one_line(
    question: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with playing("lost_in_an_answer") as server:
        assert await run("--url", server.url, "--in", question) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("talk: the conversation broke off: disconnected with close code 1006")


@pytest.mark.parametrize(
    ("flag", "content", "message"),
    [("--in", None, "No such file"), ("--in", b"no wav", "not a WAV file")],
)
async def test_a_file_that_can_not_be_read_is_a_usage_error(
    flag: str,
    content: bytes | None,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "input.wav"
    if content is not None:
        path.write_bytes(content)
    assert await run(flag, path) == 2
    assert message in capsys.readouterr().err


async def test_a_missing_voice_file_is_a_usage_error(
    question: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run("--in", question, "--ref-audio", tmp_path / "none.wav") == 2
    assert "none.wav" in capsys.readouterr().err


def test_file_or_microphone_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([])
    assert stopped.value.code == 2
    assert "--in" in capsys.readouterr().err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def progress(transcript: str = "", *news: str) -> Progress:
    return Progress(3.2, "speaking", -20.0, -96.0, transcript, news)


def test_a_terminal_has_one_live_line_under_the_lines_that_stay() -> None:
    screen = Terminal()
    console = Console(screen)
    console.show(progress("Hello the"))
    console.show(progress("Hello there", "user: hi"))
    console.finish()
    frames = screen.getvalue().split("\r\x1b[2K")
    assert frames[1].endswith("Hello the")
    assert frames[2] == "[   3.2 s] user: hi\n"
    assert frames[3].endswith("Hello there")
    assert frames[4] == ""


def test_the_live_line_fits_and_shows_the_end_of_a_long_text() -> None:
    line = live_line(progress("word " * 100 + "end"), 79)
    assert len(line) == 79
    assert line.endswith("word end")
    assert len(live_line(progress("text"), 10)) == 10
    assert "\n" not in live_line(progress("a\nb"), 79)


def test_a_bar_grows_with_the_level() -> None:
    lengths = [bar(level).count("▮") for level in (-96, -54, -53, -30, -6, 0)]
    assert lengths == [0, 0, 1, 4, 8, 8]
    assert {len(bar(level)) for level in range(-96, 1)} == {8}
