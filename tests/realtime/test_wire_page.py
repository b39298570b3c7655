"""docs/wire.md: every event is on it, and its examples are what the models read and write."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from session.config import SessionLimits
from session.realtime.decode import ALIASES, CLIENT_EVENTS, decode
from session.stimuli import EventRefused
from tests.realtime.test_duplex_facts import models
from tests.realtime.wire_texts import MAX_BYTES

PAGE = (Path(__file__).parents[2] / "docs" / "wire.md").read_text()
CLIENT_HALF, _, SERVER_HALF = PAGE.partition("\n## What the server says\n")


def objects(block: str) -> list[dict[str, Any]]:
    """Return the JSON objects that stand one after another in a block."""
    found: list[dict[str, Any]] = []
    rest = block.strip()
    while rest:
        value, end = json.JSONDecoder().raw_decode(rest)
        found.append(value)
        rest = rest[end:].strip()
    return found


def examples(half: str) -> list[tuple[str, dict[str, Any]]]:
    """Return each example with the heading that it stands under."""
    found: list[tuple[str, dict[str, Any]]] = []
    for heading, body in re.findall(r"^### (.+?)\n(.*?)(?=^##|\Z)", half, re.MULTILINE | re.DOTALL):
        for block in re.findall(r"^```json\n(.*?)^```", body, re.MULTILINE | re.DOTALL):
            found += [(heading, example) for example in objects(block)]
    return found


def headings(half: str) -> list[str]:
    """Return the third-level headings that name an event."""
    found = re.findall(r"^### (.+)$", half, re.MULTILINE)
    return [heading for heading in found if re.fullmatch(r"[a-z_.]+", heading)]


@pytest.mark.parametrize(("heading", "example"), examples(CLIENT_HALF))
def test_a_client_example_is_accepted(heading: str, example: dict[str, Any]) -> None:
    command = decode(json.dumps(example), max_bytes=MAX_BYTES)
    assert not isinstance(command, EventRefused), command
    assert ALIASES.get(example["type"], example["type"]) == heading


@pytest.mark.parametrize(("heading", "example"), examples(SERVER_HALF))
def test_a_server_example_is_exactly_what_would_be_sent(
    heading: str, example: dict[str, Any]
) -> None:
    assert example["type"] == heading
    assert example["event_id"]
    model = models()[heading].model_validate_json(json.dumps(example))
    text = model.to_text(example["event_id"], example.get("server_event_seq"))
    written = json.loads(text)
    if heading in {"session.created", "session.resumed"}:
        # The page shows some of the limits; docs/config.md has all.
        shown = example["session"]["capabilities"].pop("limits")
        assert shown.keys() <= set(SessionLimits.__slots__)
        del written["session"]["capabilities"]["limits"]
    assert written == example


def test_every_client_event_has_a_section_and_an_example() -> None:
    assert headings(CLIENT_HALF) == list(dict.fromkeys(headings(CLIENT_HALF)))
    assert set(headings(CLIENT_HALF)) == CLIENT_EVENTS.keys()
    assert {heading for heading, _ in examples(CLIENT_HALF)} == CLIENT_EVENTS.keys()


def test_every_server_event_has_a_section_and_an_example() -> None:
    assert headings(SERVER_HALF) == list(dict.fromkeys(headings(SERVER_HALF)))
    assert set(headings(SERVER_HALF)) == models().keys()
    # session.updated has the session object of session.created.
    assert {heading for heading, _ in examples(SERVER_HALF)} == models().keys() - {
        "session.updated"
    }


def test_every_alias_stands_in_its_row() -> None:
    rows = dict(re.findall(r"^\| `([a-z_.]+)` \| (`.*?`) \|", CLIENT_HALF, re.MULTILINE))
    named = {alias: event for event, cell in rows.items() for alias in re.findall(r"`(.+?)`", cell)}
    assert {alias: event for alias, event in named.items() if event in CLIENT_EVENTS} == ALIASES


def test_the_table_of_client_events_is_complete() -> None:
    listed = re.findall(r"^\| \[`(.+?)`\]\(#(.+?)\)", CLIENT_HALF, re.MULTILINE)
    assert [event for event, _ in listed] == list(CLIENT_EVENTS)
    assert all(anchor == event.replace(".", "") for event, anchor in listed)


def test_every_code_that_decoding_gives_is_explained() -> None:
    sources = Path(__file__).parents[2].joinpath("session", "realtime").rglob("*.py")
    # The other wires have pages of their own.
    others = ("openai", "live")
    own = [each for each in sources if not any(name in each.parts for name in others)]
    text = "".join(each.read_text() for each in own if each.stem.partition("_")[0] not in others)
    given = set(re.findall(r'(?:code|refusal_code) ?= ?"([a-z_]+)"', text))
    given |= set(re.findall(r'^    "[a-z_]+": "([a-z_]+)",$', text, re.MULTILINE)) & {
        "missing_required_parameter",
        "invalid_type",
        "string_above_max_length",
    }
    table = PAGE.partition("\n## Refusals of the wire\n")[2]
    explained = set(re.findall(r"`([a-z_]+)`", table))
    assert len(given) > 15
    assert given <= explained
