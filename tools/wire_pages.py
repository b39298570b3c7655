"""Writes the pages in docs/wire/: an index of the dialects, and the whole wire of each.

Rule 1: what is shown comes from the models that read and write the wire, and from transcripts that
        tests play. Nothing is written here twice.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from serve_app.dialects import KITS, Dialect
from tools.standard_events import Standard
from tools.wire_differences import ASPECTS, differences
from tools.wire_examples import Example, conversation, examples, link
from tools.wire_fields import Row, meaning, objects_in, rows
from tools.wire_registry import PAGES, DialectPage, answers, explanation_of, section_of

_STAMPS: Final = frozenset({"type", "event_id", "server_event_seq"})
"""Fields of every server event; the page names them once."""


def wire_pages(notice: str) -> dict[str, str]:
    """Return each page's text by its name."""
    pages = {page.name: dialect_page(page, notice) for page in PAGES}
    return {"index": index_page(notice), **pages}


# --- the index ---------------------------------------------------------------------------------


def index_page(notice: str) -> str:
    """Return which dialects there are, and which events each of them has."""
    return "\n".join(
        [
            "# Which wire do you speak?",
            "",
            notice,
            "One conversation, several wires: the WebSocket's URL chooses.",
            *_table(
                ("connect to", "for", "pages"),
                (
                    (
                        f"`{page.endpoint}`",
                        page.for_whom,
                        f"[events]({page.name}.md), [explained]({page.prose})",
                    )
                    for page in PAGES
                ),
            ),
            "",
            "## What else differs",
            "",
            "As it is without settings of the client, with the embedded model.",
            *_differences(),
            "",
            "## What a client sends",
            "",
            *_matrix("client", (page.client for page in PAGES)),
            "",
            "## What the server says",
            "",
            *_matrix("server", (page.server for page in PAGES)),
            "",
        ]
    )


def _differences() -> Iterator[str]:
    columns = [differences(Dialect(page.name)) for page in PAGES]
    lines = zip(ASPECTS, *columns, strict=True)
    yield from _table(("", *(f"[{page.name}]({page.name}.md)" for page in PAGES)), lines)


def _matrix(side: str, wires: Iterable[Iterable[str]]) -> Iterator[str]:
    columns = [set(wire) for wire in wires]
    yield "| event | " + " | ".join(f"[{page.name}]({page.name}.md)" for page in PAGES) + " |"
    yield "| --- |" + " :-: |" * len(PAGES)
    for name in sorted(set().union(*columns)):
        marks = (
            f"[✓]({_from_index(page, side, name)})" if name in column else ""
            for page, column in zip(PAGES, columns, strict=True)
        )
        yield f"| `{name}` | " + " | ".join(marks) + " |"


def _from_index(page: DialectPage, side: str, name: str) -> str:
    at = section_of(page, side, name)
    return f"{page.name}.md{at}" if at.startswith("#") else at


# --- a dialect ---------------------------------------------------------------------------------


def dialect_page(page: DialectPage, notice: str) -> str:
    """Return everything that can be on one dialect's wire."""
    seen = examples(page.name)
    parts = [
        f"# {page.title}, event by event",
        "",
        notice,
        f"`WS {page.endpoint}`. [Explained]({page.prose}) in prose; [other dialects](index.md).",
        "",
        *page.notes,
        *([""] if page.notes else []),
        *_client_part(page, seen),
        *_server_part(page, seen),
        *_object_part(page),
        *_conversation_part(page, seen),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _client_part(page: DialectPage, seen: list[Example]) -> Iterator[str]:
    yield "## What a client sends"
    yield ""
    yield "Every event has its `type`, and may have an `event_id` that an `error` about it names."
    yield from _table(
        ("event", "", "answered with", "for example"),
        (
            (
                _event_link(page, "client", name),
                _origin(page, page.client_standard, name),
                ", ".join(f"`{answer}`" for answer in answers(page, name)),
                link(seen, "in", name),
            )
            for name in page.client
        ),
    )
    if page.aliases:
        yield ""
        yield "Other names: " + _spoken(
            f"`{alias}` for `{name}`" for alias, name in page.aliases.items()
        )
    yield from _missing(page.client_standard, page.client)
    for name, kind in () if page.client_page else page.client.items():
        yield from _event_section(page, "client", name, kind)
        others = [alias for alias, named in page.aliases.items() if named == name]
        if others:
            yield ""
            yield "Also " + _spoken(f"`{other}`" for other in others)
        own = rows(kind, skip=("type", "event_id"))
        yield from _field_table(own, page.client_standard.get(name))
    yield ""


def _server_part(page: DialectPage, seen: list[Example]) -> Iterator[str]:
    yield "## What the server says"
    yield ""
    yield "Every event has its `type` and, unless it says that it has none, an `event_id`."
    if KITS[Dialect(page.name)].is_resumable:
        yield "Where the session can be resumed it has a `server_event_seq`, too."
    yield from _table(
        ("event", "", "meaning", "for example"),
        (
            (
                _event_link(page, "server", name),
                _origin(page, page.server_standard, name),
                meaning(kind),
                link(seen, "out", name),
            )
            for name, kind in page.server.items()
        ),
    )
    yield from _missing(page.server_standard, page.server)
    for name, kind in () if page.server_page else page.server.items():
        yield from _event_section(page, "server", name, kind)
        yield from _field_table(rows(kind, skip=_STAMPS), page.server_standard.get(name))
    yield ""


def _object_part(page: DialectPage) -> Iterator[str]:
    events = [
        *(() if page.client_page else page.client.values()),
        *(() if page.server_page else page.server.values()),
    ]
    objects = sorted(objects_in(events), key=lambda kind: kind.__name__)
    if not objects:
        return
    yield "## Objects"
    yield ""
    yield "What fields of the events above hold."
    for kind in objects:
        yield ""
        yield f"### {kind.__name__}"
        yield ""
        yield meaning(kind)
        yield from _field_table(rows(kind))
    yield ""


def _conversation_part(page: DialectPage, seen: list[Example]) -> Iterator[str]:
    if not seen:
        return
    yield "## Conversations"
    yield ""
    yield "Tests play these against the service, field by field. `→` is the client, `←` the server."
    yield "A name with `$` stands for an id, `*` for any value, and sound is written as its length."
    yield "What every event has is left out."
    by_name = {example.name: example for example in seen}
    for name in page.conversations:
        yield ""
        yield from conversation(by_name[name])
    yield ""
    yield "### All of them"
    yield from _table(
        ("conversation", "shows"),
        ((f"[{example.name}]({example.path})", example.about) for example in seen),
    )


# --- parts of a page ---------------------------------------------------------------------------


def _event_link(page: DialectPage, side: str, name: str) -> str:
    return f"[`{name}`]({section_of(page, side, name)})"


def _event_section(page: DialectPage, side: str, name: str, kind: type) -> Iterator[str]:
    yield ""
    yield f"### {side.title()}: {name}"
    yield ""
    more = explanation_of(page, name)
    yield meaning(kind) + (f" [More]({more})." if more else "")


def _field_table(fields: list[Row], standard: frozenset[str] | None = None) -> Iterator[str]:
    """Yield the fields of an event or object; `standard` has those of the published event."""
    if not fields:
        return
    cells = (
        (
            f"`{row.name}`",
            row.holds,
            row.presence,
            "" if standard is None or row.name in standard else "own",
            row.meaning,
        )
        for row in fields
    )
    yield from _table(("field", "holds", "is", "", "meaning"), cells)


def _origin(page: DialectPage, standard: Standard, name: str) -> str:
    if not standard:
        return ""
    if name in standard:
        return "standard"
    return "older name" if name in page.older_names else "own"


def _missing(standard: Standard, wire: Iterable[str]) -> Iterator[str]:
    absent = sorted(standard.keys() - set(wire))
    if absent:
        yield ""
        yield "Standard, and not here: " + _spoken(f"`{name}`" for name in absent)


def _table(heads: tuple[str, ...], rows_: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yield a table, without the columns in which nothing stands."""
    lines = list(rows_)
    kept = [at for at in range(len(heads)) if any(line[at] for line in lines)]
    yield ""
    yield _cells(*(heads[at] for at in kept))
    yield _cells(*("---" for _ in kept))
    for line in lines:
        yield _cells(*(line[at] for at in kept))


def _cells(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _spoken(parts: Iterable[str]) -> str:
    return ", ".join(parts) + "."
