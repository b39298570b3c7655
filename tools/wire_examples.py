"""Golden transcripts as examples on the pages of the wire."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from serve_app.dialects import KITS, Dialect

FOLDER: Final = Path(__file__).parent.parent / "tests" / "contract" / "transcripts"
FROM_PAGES: Final = "../../tests/contract/transcripts"
USUAL_DIALECT: Final = "duplex"

_USUALLY_OPENED: Final = ("session.created", "session.updated")
_OPENED: Final = {"live": ("session.started",)}
"""What an opening is answered with."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Example:
    """One transcript."""

    name: str
    header: Json
    lines: tuple[Json, ...]

    @property
    def about(self) -> str:
        """What it shows, in a sentence."""
        return str(self.header["about"]).replace("|", "\\|")

    @property
    def path(self) -> str:
        """Where it is, from a page of the wire."""
        return f"{FROM_PAGES}/{self.name}.jsonl"

    @property
    def has_errors(self) -> bool:
        """Whether the client is refused something in it."""
        return ("out", "error") in self.types

    @cached_property
    def types(self) -> frozenset[tuple[str, str]]:
        """Direction and type of every event in it."""
        return frozenset(
            (way, event["type"])
            for line in self.lines
            for way in ("in", "out")
            for event in _events(line.get(way))
        )


def examples(dialect: str) -> list[Example]:
    """Return the transcripts of a dialect, by name."""
    found = []
    for path in sorted(FOLDER.glob("*.jsonl")):
        header, *lines = [json.loads(line) for line in path.read_text().splitlines() if line]
        if header.get("dialect", USUAL_DIALECT) == dialect:
            found.append(Example(path.stem, header, tuple(lines)))
    return found


def link(seen: list[Example], way: str, name: str) -> str:
    """Return a link to the shortest transcript with an event, if possible one without errors."""
    having = [example for example in seen if (way, name) in example.types]
    if not having:
        return ""
    shortest = min(having, key=lambda one: (one.has_errors, len(one.lines), one.name))
    return f"[{shortest.name}]({shortest.path})"


def conversation(example: Example) -> Iterator[str]:
    """Yield a transcript as a section of a page."""
    yield f"### {example.name}"
    yield ""
    yield example.header["about"]
    yield ""
    yield "```text"
    yield from _opening(example)
    for line in example.lines:
        yield from _shown(line)
    yield "```"


def _opening(example: Example) -> Iterator[str]:
    config = example.header.get("config")
    if config is None:
        return
    dialect = example.header.get("dialect", USUAL_DIALECT)
    asked = "session.start" if dialect == "live" else "session.update"
    opening = [
        _sent({"type": asked, "session": config}),
        *(f'← {{"type": "{name}"}}' for name in _OPENED.get(dialect, _USUALLY_OPENED)),
    ]
    if KITS[Dialect(dialect)].greets:
        opening[:2] = reversed(opening[:2])
    yield from opening


def _shown(line: Json) -> Iterator[str]:
    match line:
        case {"out": {"type": "closed", "code": code, "reason": reason}}:
            yield f"{_place(line)}← the socket is closed: {code} {reason}"
        case {"out": event}:
            yield f"{_place(line)}← {json.dumps(event, ensure_ascii=False)}"
        case {"in": sent}:
            for event in _events(sent):
                yield _place(line) + _sent(event)
        case {"raw": frame}:
            yield f"{_place(line)}→ {frame}"
        case {"connect": socket}:
            yield f"# socket {socket} connects to /v1/realtime?{line.get('query', 'duplex=1')}"
        case {"break": socket}:
            yield f"# socket {socket} breaks"
        case {"at": second}:
            yield f"# nothing comes until second {second:g}"
        case _:
            yield f"# {json.dumps(line)}"


def _place(line: Json) -> str:
    return f"{line['socket']} " if "socket" in line else ""


def _sent(event: Json) -> str:
    return f"→ {json.dumps(event, ensure_ascii=False)}"


def _events(sent: object) -> list[Json]:
    if sent is None:
        return []
    return sent if isinstance(sent, list) else [sent]  # type: ignore[list-item]  # one or many
