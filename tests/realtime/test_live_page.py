"""docs/live.md says all that the live wire refuses, and its example is a client's."""

import re
from pathlib import Path

from session.realtime.live.client_events import COMMANDS, MAX_CONTENT_CHARS, REFUSAL_CODES
from session.realtime.live.reader import CODES
from tools.standard_events import LIVE_CLIENT

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "live.md").read_text()
SOURCES = (
    *(ROOT / "session" / "realtime" / "live").glob("*.py"),
    ROOT / "session" / "on_context.py",
    *(ROOT / "session" / "realtime" / shared for shared in ("decode.py", "json_text.py")),
)


def test_every_code_that_the_wire_gives_is_explained() -> None:
    text = "".join(source.read_text() for source in SOURCES)
    given = set(re.findall(r'code="([a-z_]+)"', text))
    given |= set(REFUSAL_CODES.values()) | set(CODES.values())
    table = PAGE.partition("\n## What is refused\n")[2].partition("\n## ")[0]
    explained = set(re.findall(r"^\| (.+?) \|", table, re.MULTILINE))
    assert len(given) > 15
    assert given <= set(re.findall(r"`([a-z_]+)`", " ".join(explained)))


def test_every_event_of_the_published_client_is_taken_or_refused_by_name() -> None:
    own = {"session.start", "session.input_audio.append", *COMMANDS, *REFUSAL_CODES}
    assert LIVE_CLIENT.keys() <= own
    named = set(re.findall(r"`((?:session|response|decision|transport)\.[a-z_.]+)`", PAGE))
    assert own - named <= {"session.input_audio.unmute"}  # which stands as `.unmute`


def test_the_length_of_a_text_is_the_one_on_the_page() -> None:
    assert f"up to {MAX_CONTENT_CHARS} characters" in PAGE
