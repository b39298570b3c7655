"""Golden transcripts: how they are written, and when an event is the one that is written.

A file is one scenario, one JSON object a line. docs/testing.md explains the lines.

Rule 1: an event has exactly the fields that its line has, but for those in `IGNORED`. A line may
        name one of them all the same, and then it counts.
Rule 2: `$name` in a text stands for an id: bound at first sight, compared afterwards. Two names
        never stand for the same id.
Rule 3: `*` stands for any value.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.contract.sounds import heard_sound, spoken_sound

FOLDER: Final = Path(__file__).parent / "transcripts"
IGNORED: Final = frozenset(
    {
        "event_id",  # of the server; an error's own event_id counts
        "server_event_seq",
        "session",
        "attachment_generation",
        "resume_token",
        "error.message",
    }
)
"""Fields that a line leaves out unless they are what it is about."""
PARTIAL: Final = frozenset({"session"})
"""Objects of which a line names only some fields."""
PLACES: Final = {
    "duplex": "/v1/realtime?duplex=1",
    "duplex_ga": "/v1/realtime?duplex=1&dialect=ga",
    "internal": "/v1/duplex?",
    "openai": "/v1/realtime?model=any",
    "live": "/v1/live/sessions?",
}
"""Where each dialect is spoken."""
GREETING: Final = frozenset({"openai"})
"""Dialects in which the server says something first."""
STANDARD: Final = frozenset({"openai", "live"})
"""Dialects that have only what the published API has, so that no heartbeat can be asked for."""
_NAME: Final = re.compile(r"\$([a-z]+[0-9]*)")

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """One line after the header."""

    number: int
    content: Json

    @property
    def at_s(self) -> float | None:
        """When it happens, in seconds of virtual time; None: as soon as it can."""
        at: float | None = self.content.get("at")
        return at

    @property
    def socket(self) -> str:
        """Which of the client's sockets it is about."""
        name: str = self.content.get("socket", "a")
        return name


@dataclass(frozen=True, slots=True)
class Transcript:
    """A scenario."""

    name: str
    header: Json
    steps: tuple[Step, ...]

    @property
    def dialect(self) -> str:
        """The wire that is spoken."""
        dialect: str = self.header.get("dialect", "duplex")
        return dialect

    def target(self, query: str | None = None) -> str:
        """Return where a socket connects to, from the root; `query` replaces the usual one."""
        place = PLACES[self.dialect]
        return place if query is None else f"{place.partition('?')[0]}?{query}"

    @property
    def limits(self) -> Json:
        """The server's limits that are not as they come."""
        limits: Json = self.header.get("limits", {})
        return limits

    @property
    def opening(self) -> Json | None:
        """The event that opens the session; None where the steps do it."""
        if self.header.get("config") is None:
            return None
        config: Json = dict(self.header["config"])
        if self.header.get("script"):
            config["instructions"] = f"script: {json.dumps(self.header['script'])}"
        name = "session.start" if self.dialect == "live" else "session.update"
        return {"type": name, "session": config}

    @property
    def greeting(self) -> tuple[str, ...]:
        """What a session that opens is answered with, in order."""
        if self.dialect == "live":
            return ("session.started",)
        return ("session.created", "session.updated")

    @property
    def is_for_sockets(self) -> bool:
        """Whether a service with real sockets and real time can play it."""
        return self.header.get("level") != "pure"


def read(path: Path) -> Transcript:
    """Read a file."""
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    steps = (Step(number, content) for number, content in enumerate(lines[1:], start=2))
    return Transcript(path.stem, lines[0], tuple(steps))


def every_transcript() -> list[Transcript]:
    """Return all scenarios, by name."""
    return [read(path) for path in sorted(FOLDER.glob("*.jsonl"))]


@dataclass(slots=True)
class Bindings:
    """What the names of a scenario stand for."""

    ids: dict[str, str] = field(default_factory=dict)

    def fill(self, value: Any) -> Any:
        """Return what a client sends: names replaced by ids, sounds by base64."""
        match value:
            case str():
                return _NAME.sub(lambda name: self.ids[name[1]], value)
            case {"audio_ms": _}:
                return spoken_sound(value)
            case dict():
                return {name: self.fill(each) for name, each in value.items()}
            case list():
                return [self.fill(each) for each in value]
            case _:
                return value

    def difference(self, wanted: Json, event: Json) -> str:
        """Say where an event is not the wanted one; empty when it is. Binds new names."""
        seen = heard_sound(event)
        return "; ".join(self._differences(wanted, seen, ""))

    def _differences(self, wanted: Any, seen: Any, path: str) -> Iterator[str]:
        match wanted, seen:
            case "*", _:
                return
            case dict(), dict():
                yield from self._fields(wanted, seen, path)
            case list(), list() if len(wanted) == len(seen):
                for index, (one, other) in enumerate(zip(wanted, seen, strict=True)):
                    yield from self._differences(one, other, f"{path}[{index}]")
            case str(), str():
                if not self._is_same(wanted, seen):
                    yield f"{path}: {self._shown(wanted)!r}, but it is {seen!r}"
            case _:
                if wanted != seen or isinstance(wanted, bool) is not isinstance(seen, bool):
                    yield f"{path}: {wanted!r}, but it is {seen!r}"

    def _fields(self, wanted: Json, seen: Json, path: str) -> Iterator[str]:
        for name, value in wanted.items():
            here = f"{path}.{name}".removeprefix(".")
            if name not in seen:
                yield f"{here} is missing"
            else:
                yield from self._differences(value, seen[name], here)
        for name in seen.keys() - wanted.keys():
            here = f"{path}.{name}".removeprefix(".")
            if here not in IGNORED and path.split(".", maxsplit=1)[0] not in PARTIAL:
                yield f"{here} is not expected: {seen[name]!r}"

    def _is_same(self, wanted: str, seen: str) -> bool:
        """Compare texts; names that are not bound yet take what stands in their place."""
        pattern, new, end = "", [], 0
        for name in _NAME.finditer(wanted):
            pattern += re.escape(wanted[end : name.start()])
            bound = self.ids.get(name[1])
            pattern += "(.+)" if bound is None else re.escape(bound)
            new += [name[1]] if bound is None else []
            end = name.end()
        found = re.fullmatch(pattern + re.escape(wanted[end:]), seen, re.DOTALL)
        if found is None:
            return False
        taken = dict(zip(new, found.groups(), strict=True))
        if set(taken.values()) & set(self.ids.values()):
            return False
        self.ids |= taken
        return True

    def _shown(self, wanted: str) -> str:
        return _NAME.sub(lambda name: self.ids.get(name[1], name[0]), wanted)
