"""Writes errors.md, config.md, metrics.md and wire/ of docs/ from the code they describe.

Rule 1: a meaning stands once, beside the class or field it explains; the page repeats it.
Rule 2: an undocumented field is an error, so that the pages have no gaps.
"""

import ast
import dataclasses
import inspect
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pydantic import BaseModel

from serve_app import settings
from serve_app.access.principal import Principal, Quota
from serve_app.gateway.http_answers import http_status
from serve_app.settings import AppArgs, AuthArgs, GatewayArgs, LogArgs, StageArgs, TracingArgs
from session import errors
from session.config import SessionLimits
from session.errors import DuplexError
from session.on_lifecycle import close_code
from session.realtime.dialects.openai_shapes import error_object
from stages.embedded.settings import EmbeddedSettings
from stages.minicpmo.settings import MiniCPMOSettings
from stages.scripted.settings import ScriptedSettings
from tools.docstrings import attribute_docs, docs_in, summary
from tools.metrics_page import metrics_page
from tools.wire_pages import wire_pages

ROOT: Final = Path(__file__).parent.parent
RAISING_PACKAGES: Final = ("session", "stages", "serve_app")
NOTICE: Final = "<!-- Made by `make docs` from the code; change it there. -->\n"


def main() -> None:
    """Write every page."""
    for path, text in pages().items():
        (ROOT / path).write_text(text)
        print(f"wrote {path}")


def pages() -> dict[str, str]:
    """Return each generated page's text by its path."""
    own = {
        "docs/errors.md": error_page(),
        "docs/config.md": config_page(),
        "docs/metrics.md": metrics_page(NOTICE),
    }
    wire = {f"docs/wire/{name}.md": text for name, text in wire_pages(NOTICE).items()}
    return own | wire


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
            "Indentation shows the tree of `session/errors.py`. The first code is the default;",
            "after an arrow stands its name on the `openai` dialect and over HTTP, where that is",
            "another. HTTP: the status of an answer that is this error; `Retry-After` comes with",
            "it where it is known when to try again. Closed: what a socket is closed with whose",
            "session can not open for this. What is wrong within a session and does not end it",
            "closes nothing.",
            "",
            "| error | `type` | `code` | HTTP | closed | worth a retry | meaning |",
            "| --- | --- | --- | --- | --- | --- | --- |",
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
        ", ".join(code_name(kind, name) for name in names),
        ", ".join(statuses(kind, names)),
        str(close_code(kind(""))),
        "yes" if kind.retryable else "no",
        summary(inspect.getdoc(kind) or ""),
    )
    return "| " + " | ".join(cells) + " |"


def code_name(kind: type[DuplexError], code: str) -> str:
    """Return a code as clients see it, with the name that clients of the published API know."""
    shown = error_object(kind("", code=code), None).code
    return f"`{code}`" if shown == code else f"`{code}` \u2192 `{shown}`"


def statuses(kind: type[DuplexError], codes: list[str]) -> list[str]:
    """Return the HTTP status of an error, and of those of its codes that have another one."""
    usual = http_status(kind(""))
    found = [str(usual)]
    for code in codes:
        status = http_status(kind("", code=code))
        if status != usual:
            found.append(f"{status} for `{code}`")
    return found


def used_codes() -> dict[str, set[str]]:
    """Return, by error name, each literal ``code=`` that the packages give it."""
    names = {kind.__name__ for kind, _ in walk(DuplexError, 0)}
    found: dict[str, set[str]] = defaultdict(set)
    for package in RAISING_PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            tree = ast.parse(path.read_text())
            tables = literal_tables(tree)
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and called_name(node) in names:
                    found[called_name(node)] |= codes_of(node, tables)
    return found


def literal_tables(tree: ast.Module) -> dict[str, set[str]]:
    """Return the texts in each dict of literals that a module has under a name."""
    return {
        statement.target.id: {
            value.value
            for value in statement.value.values
            if isinstance(value, ast.Constant) and isinstance(value.value, str)
        }
        for statement in tree.body
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and isinstance(statement.value, ast.Dict)
    }


def called_name(call: ast.Call) -> str:
    """Return the last part of the called name, or an empty text for other callables."""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def codes_of(call: ast.Call, tables: dict[str, set[str]]) -> set[str]:
    """Return what ``code=`` can be: a literal, or the values of the table that it is taken from."""
    found: set[str] = set()
    for keyword in call.keywords:
        match keyword:
            case ast.keyword(arg="code", value=ast.Constant(value=str() as code)):
                found.add(code)
            case ast.keyword(arg="code", value=ast.Subscript(value=ast.Name(id=table))):
                found |= tables.get(table, set())
            case _:
                pass
    return found


# --- configuration -----------------------------------------------------------------------------

MODEL_SETTINGS: Final[dict[str, type[BaseModel]]] = {
    "embedded": EmbeddedSettings,
    "minicpmo and minicpmo_tiny": MiniCPMOSettings,
    "scripted": ScriptedSettings,
}


def config_page() -> str:
    """Return what a deploy file and the environment may say, with defaults and meanings."""
    parts = [
        "# Configuration\n",
        NOTICE,
        "A deploy file is a Serve config file with one application, whose `import_path` is",
        "`serve_app.app:build_app`. What follows stands under its `args`. The file is checked",
        "before anything starts: `.venv/bin/python -m serve_app.check FILE` says what is wrong and",
        "where. A client can change none of it. The application's `route_prefix` may be any path:",
        "keys are asked for below it as they are at `/`.",
        *section("args", model_rows(AppArgs)),
        *section("args.limits", dataclass_rows(SessionLimits)),
        *section("args.auth", model_rows(AuthArgs)),
        *key_file_section(),
        *section("args.gateway", model_rows(GatewayArgs)),
        *section("args.logs", model_rows(LogArgs)),
        *section("args.stage0, args.stage1", model_rows(StageArgs)),
        *section("args.tracing", model_rows(TracingArgs)),
    ]
    for name, kind in MODEL_SETTINGS.items():
        parts += model_section(f"args.model_settings of {name}", "", kind)
    return "\n".join([*parts, "\n## Environment\n", *environment_lines(), ""])


KEY_FILE: Final = """
## The key file

`auth.api_keys_file` has one key a line, in plain text that only the service can read, and after a
key whose it is and what that client may have. A line that begins with `#` is a comment. `none`
instead of a number lifts a bound.

    s3cret
    s4cret name=alice max_sessions=4 max_opens_per_minute=30
    s5cret name=alice
"""
KEY_RULES: Final = """
* Keys with one name are one client with one quota. To replace a key, add a line with the same
  name, let the clients change over, and take the old line out. What one line of a name says of
  its bounds holds for all.
* The file is read again when it has changed; no restart is needed. Write a new one beside it and
  put it in its place with `mv`: of a file that is written in place, a half may be read. The last
  line counts also without a newline, so half a key would be a key. A file with a wrong line
  changes nothing while the service runs, is logged and counts in `duplex_key_file_faults_total`;
  at the start it is a fault. Messages name line and field, and never a key; of many faults,
  the first ten. A mark at the beginning of the file (BOM) is passed over; another character that
  is not seen is a fault. A line at INFO says
  when a file was read, and how many keys and names it has.
* Where a file is named, keys are asked for. While it is empty or not there yet, and no key is
  given by the environment, nobody comes in (403), also on loopback, and it is logged. The same
  holds for `auth.admin_keys_file` and /admin/.
* With a key that is taken out nobody begins a session any more, nor with client secrets once no
  key of its name is left. Sessions that are open go on; whoever loses the socket of one resumes it
  with a key that is in force.
* Keys of `DUPLEX_API_KEYS` have no names. Where no key is asked for, all clients are one:
  `anyone`.
* Where no key is asked for, requests to /v1/, /admin/, /metrics and sockets must name `localhost`,
  an address of loopback or the host of an allowed origin (`Host`), or get 403: the page of a
  stranger may have its own name lead to this machine. Pages of other local ports may talk; what
  stands under /admin/ is changed only by pages of its own host and port, or an allowed origin.
* A client over its quota gets an `error` (`session_quota_exceeded`, `rate_limit_exceeded`), then
  close 1013, before any stage is asked; a refused try is not counted, nor one that finds no free
  slot, and a resume is no open.
  Sessions that are opened with a client secret count against the key that made it.
"""


def key_file_section() -> list[str]:
    """Return what a line of the key file may say."""
    fields = attribute_docs(Principal) | attribute_docs(Quota)
    rows = [f"| `{name}` | {meaning} |" for name, meaning in fields.items()]
    return [KEY_FILE, "| field | meaning |", "| --- | --- |", *rows, KEY_RULES.rstrip()]


def model_section(title: str, prefix: str, kind: type[BaseModel]) -> list[str]:
    """Return a model's table of settings, and one for each group within them."""
    parts = section(f"{title}{prefix and f': {prefix}'}", model_rows(kind))
    for name, field in kind.model_fields.items():
        group = field.annotation
        if isinstance(group, type) and issubclass(group, BaseModel):
            parts += model_section(title, f"{prefix}{prefix and '.'}{name}", group)
    return parts


def section(title: str, rows: list[str]) -> list[str]:
    """Return a table of settings under its heading."""
    head = ["| name | default | meaning |", "| --- | ---: | --- |"]
    return [f"\n## {title}\n", *head, *rows]


def dataclass_rows(kind: type) -> list[str]:
    """Return one table line for each field of a dataclass."""
    defaults = {field.name: field.default for field in dataclasses.fields(kind)}
    return rows_of(kind.__name__, defaults, attribute_docs(kind))


def model_rows(kind: type[BaseModel]) -> list[str]:
    """Return one table line for each field of a pydantic model."""
    defaults = {
        name: field.get_default(call_default_factory=True, validated_data={})
        for name, field in kind.model_fields.items()
    }
    described = {
        name: summary(field.description)
        for name, field in kind.model_fields.items()
        if field.description
    }
    return rows_of(kind.__name__, defaults, attribute_docs(kind) | described)


def rows_of(owner: str, defaults: dict[str, object], meanings: dict[str, str]) -> list[str]:
    """Return the table lines; raises ValueError for a field that nobody explained."""
    silent = defaults.keys() - meanings.keys()
    if silent:
        raise ValueError(f"{owner} has fields without a docstring: {sorted(silent)}")
    return [f"| `{name}` | {shown(defaults[name])} | {meanings[name]} |" for name in defaults]


def environment_lines() -> list[str]:
    """Return one line for each environment variable that the settings know."""
    return [
        f"* `{getattr(settings, name)}`: {meaning}"
        for name, meaning in docs_in(ast.parse(inspect.getsource(settings)).body).items()
        if name.endswith("_VARIABLE")
    ]


def shown(default: object) -> str:
    """Return a default as it stands in a YAML file; a group of settings shows nothing."""
    match default:
        case None:
            return "`null`"
        case bool():
            return f"`{str(default).lower()}`"
        case BaseModel():
            return ""
        case frozenset():
            return f"`{json.dumps(sorted(default))}`"
        case str() | dict() | tuple():
            return f"`{json.dumps(default)}`"
        case _:
            return f"`{default}`"


if __name__ == "__main__":
    main()
