"""The pages of the wire: every dialect and every event, and answers that transcripts show."""

import pytest
from pydantic import BaseModel, Field

from serve_app.dialects import KITS
from session.realtime.server_objects import Absent, WireObject
from tools.standard_events import REALTIME_CLIENT, REALTIME_SERVER
from tools.wire_examples import Example, examples, link
from tools.wire_fields import rows
from tools.wire_registry import DUPLEX, LIVE, OPENAI, PAGES, DialectPage, answers


class Part(WireObject):
    """A part."""

    size_ms: int
    """How long."""
    note: Absent[str] = None
    other: str | None


class Asked(BaseModel):
    """A client's event."""

    item_id: str = Field(max_length=512)
    """Which one."""
    speed: float | None = Field(default=None, ge=0.25, le=1.5)


def test_every_dialect_of_the_gateway_has_a_page() -> None:
    assert {page.name for page in PAGES} == {dialect.value for dialect in KITS}


def test_what_the_server_writes_is_always_there_or_may_be_absent() -> None:
    shown = [(row.name, row.holds, row.presence, row.meaning) for row in rows(Part)]
    assert shown == [
        ("size_ms", "whole number", "always", "How long."),
        ("note", "text", "may be absent", ""),
        ("other", "text or null", "always", ""),
    ]


def test_what_a_client_writes_is_required_or_not() -> None:
    shown = [(row.name, row.holds, row.presence, row.meaning) for row in rows(Asked)]
    assert shown == [
        ("item_id", "text of up to 512 characters", "required", "Which one."),
        ("speed", "number from 0.25 to 1.5 or null", "", ""),
    ]


def test_a_type_without_words_is_an_error() -> None:
    class Strange(BaseModel):
        """Holds what no wire can."""

        thing: complex

    with pytest.raises(TypeError, match="complex"):
        rows(Strange)


def test_the_standard_is_the_published_one() -> None:
    assert len(REALTIME_CLIENT) == 11
    assert len(REALTIME_SERVER) == 46
    assert "audio_start_ms" in REALTIME_SERVER["input_audio_buffer.speech_started"]


def told(example: Example, asked: str, answer: str) -> bool:
    """Whether in a transcript an answer comes after what it answers."""
    has_asked = False
    for line in example.lines:
        sent = line.get("in", [])
        has_asked |= asked in [
            event["type"] for event in (sent if isinstance(sent, list) else [sent])
        ]
        if has_asked and line.get("out", {}).get("type") == answer:
            return True
    return False


@pytest.mark.parametrize("page", [DUPLEX, LIVE, OPENAI], ids=lambda page: page.name)
def test_a_transcript_shows_each_answer(page: DialectPage) -> None:
    seen = examples(page.name)
    wanted = [(asked, answer) for asked in page.client for answer in answers(page, asked)]
    assert wanted
    assert [pair for pair in wanted if not any(told(one, *pair) for one in seen)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_answers_are_events_of_the_dialect(page: DialectPage) -> None:
    assert all(set(answers(page, name)) <= page.server.keys() for name in page.client)
    assert all(answers(page, name) for name in page.client if name in page.answers)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_is_shown_in_full_is_there(page: DialectPage) -> None:
    there = {example.name for example in examples(page.name)}
    assert set(page.conversations) <= there


def test_an_example_without_errors_is_preferred() -> None:
    def example(name: str, *out: str) -> Example:
        return Example(name, {}, tuple({"out": {"type": kind}} for kind in out))

    short, long = example("short", "session.updated", "error"), example("long", *["a"] * 9)
    both = [short, example("long", "session.updated", *["a"] * 9)]
    assert "long" in link(both, "out", "session.updated")
    assert "short" in link([short, long], "out", "session.updated")
    assert link(both, "in", "session.updated") == ""
