"""Writes docs/errors.md and docs/config.md from the code they describe.

Rule 1: a meaning stands once, as the docstring of the class or field; the page repeats it.
Rule 2: an undocumented field is an error, so that the pages have no gaps.
"""

import ast
import dataclasses
import inspect
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from session import errors
from session.config import SessionLimits
from session.errors import DuplexError

ROOT = Path(__file__).parent.parent
RAISING_PACKAGES = ("session", "stages", "serve_app")
NOTICE = "<!-- Made by `make docs` from the code; change it there. -->\n"


def main() -> None:
    """Write both pages."""
    for path, text in pages().items():
        (ROOT / path).write_text(text)
        print(f"wrote {path}")


def pages() -> dict[str, str]:
    """Return each generated page's text by its path."""
    return {"docs/errors.md": error_page(), "docs/config.md": config_page()}


# --- errors ------------------------------------------------------------------------------------


def error_page() -> str:
    """Return the error tree as a table, with the codes that the code really uses."""
    codes = used_codes()
    rows = [error_row(kind, depth, codes[kind.__name__]) for kind, depth in walk(DuplexError, 0)]
    return "\n".join(
        [
            "# Errors",
            "",
            NOTICE,
            "Every error that can reach a client is one `error` event with a `type` and a `code`.",
            "Indentation shows the tree of `session/errors.py`. The first code is the default.",
            "",
            "| error | `type` | `code` | worth a retry | meaning |",
            "| --- | --- | --- | --- | --- |",
            *rows,
            "",
        ]
    )


def walk(kind: type[DuplexError], depth: int) -> Iterator[tuple[type[DuplexError], int]]:
    """Yield the subclasses of `kind` in the order they are written, children after parents."""
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield child, depth
            yield from walk(child, depth + 1)


def error_row(kind: type[DuplexError], depth: int, codes: set[str]) -> str:
    """Return one line of the table."""
    names = [kind.code, *sorted(codes - {kind.code})]
    cells = (
        "&emsp;" * depth + f"`{kind.__name__}`",
        f"`{kind.wire_type}`",
        ", ".join(f"`{name}`" for name in names),
        "yes" if kind.retryable else "no",
        first_line(inspect.getdoc(kind) or ""),
    )
    return "| " + " | ".join(cells) + " |"


def used_codes() -> dict[str, set[str]]:
    """Return, by error name, each literal ``code=`` that the packages give it."""
    names = {kind.__name__ for kind, _ in walk(DuplexError, 0)}
    found: dict[str, set[str]] = defaultdict(set)
    for package in RAISING_PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and called_name(node) in names:
                    found[called_name(node)] |= literal_codes(node)
    return found


def called_name(call: ast.Call) -> str:
    """Return the last part of the called name, or nothing for other callables."""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def literal_codes(call: ast.Call) -> set[str]:
    """Return the value of ``code="..."`` if it is a literal."""
    return {
        keyword.value.value
        for keyword in call.keywords
        if keyword.arg == "code"
        and isinstance(keyword.value, ast.Constant)
        and isinstance(keyword.value.value, str)
    }


# --- configuration -----------------------------------------------------------------------------


def config_page() -> str:
    """Return the server's limits with their defaults."""
    return "\n".join(
        [
            "# Configuration",
            "",
            NOTICE,
            "## Limits",
            "",
            "Under `limits` in the deploy file. A client can not change them.",
            "",
            "| name | default | meaning |",
            "| --- | ---: | --- |",
            *dataclass_rows(SessionLimits),
            "",
        ]
    )


def dataclass_rows(kind: type) -> list[str]:
    """Return one table line a field: name, default and meaning."""
    meanings = attribute_docs(kind)
    return [
        f"| `{field.name}` | {shown(field.default)} | {meanings[field.name]} |"
        for field in dataclasses.fields(kind)
    ]


def attribute_docs(kind: type) -> dict[str, str]:
    """Return the string that follows each annotated field in the source of `kind`."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    docs = {}
    for field, following in zip(body.body, body.body[1:], strict=False):
        match field, following:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                docs[name] = first_line(text)
            case _:
                pass
    return docs


def shown(default: object) -> str:
    """Return a default as it stands in a YAML file."""
    match default:
        case None:
            return "`null`"
        case bool():
            return f"`{str(default).lower()}`"
        case _:
            return f"`{default}`"


def first_line(text: str) -> str:
    """Return the first line of a docstring, safe in a table."""
    return text.strip().split("\n")[0].replace("|", "\\|")


if __name__ == "__main__":
    main()
