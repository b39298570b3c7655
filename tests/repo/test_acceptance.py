"""docs/acceptance.md has a row for every line of the contract, and names tests that exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "acceptance.md"

LINES = {
    "Acceptance criteria": (
        "one mailbox passes exactly-once and wire-order tests",
        "cancel advances the engine fence even when the old append continues in an executor",
        "request completion removes model helper and model-owned force-listen state",
        "RPC fatal/close wakes every waiter and no new work enters after terminal",
        "Session is the only serving response/overlap authority",
        "stale terminal events cannot mutate a newer epoch",
        "an accepted terminal cannot be dropped by the writer",
        "no duplicate `response.speak` or transcript delta appears",
        "Stage0 KV continuity and Stage1 turn reset pass",
        "the real multi-turn audio E2E passes",
        "ordinary non-duplex paths in the affected matrix still pass",
        "no local path, proxy token, temporary profiling probe, or test-only switch is present",
    ),
    "E2E contract": (
        "model-policy: three distinct inputs, no transcript hints, 200 ms real-time pacing",
        "response-required: a pinned recording, one complete spoken response",
        "late and old-response playback ACK handling",
        "final model-policy response drain before `session.close`",
        "close/disconnect with no post-terminal audio",
        "transcript delta/final consistency",
        "generated WAV validity and external ASR sanity",
        "distinct-input fixtures are semantically distinct",
        "each run records revision, command, server log, client log, WAV path and cleanup result",
    ),
    "Focused suites": (
        "RPC router and shutdown/error routing",
        "orchestrator fatal and duplex control paths",
        "WebSocket Actor mailbox and writer",
        "duplex protocol and Session ownership",
        "Realtime handler, terminal ordering, overlap, playback ACK",
        "scheduler resumable boundary",
        "model runner and Stage0/Stage1 lifecycle",
    ),
    "Laws of the kernel": tuple(f"{law}: " for law in range(1, 15)),
}
"""What must have a row, by section: how the row's first cell begins."""

ID = re.compile(r"`(tests/[^`\s]+)`")
EXCUSE = "not applicable"


def rows(page: str, section: str) -> list[list[str]]:
    """Return the cells of the tables under a heading, without their heads."""
    text = page.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines][2:]


def faults_of(page: str) -> list[str]:
    """Say which lines have no row, which rows show nothing, and which ids lead nowhere."""
    faults = []
    for section, lines in LINES.items():
        found = rows(page, section)
        for line in lines:
            matching = [row for row in found if row[0].startswith(line)]
            if len(matching) != 1:
                faults.append(f"{section}: {len(matching)} rows for {line!r}")
        faults += [
            f"{section}: {row[0]!r} names no test and no reason"
            for row in found
            if not ID.search(row[-1]) and f"{EXCUSE}, because" not in re.sub(" yet", "", row[-1])
        ]
    return faults + [
        f"no such test: {test_id}" for test_id in ID.findall(page) if not exists(test_id)
    ]


def exists(test_id: str) -> bool:
    """Whether a file has the test, by what stands in it: nothing is imported."""
    path, _, case = test_id.partition("::")
    name, _, parameter = case.partition("[")
    if not (ROOT / path).is_file() or (name and name not in named_in(path)):
        return False
    if not parameter:
        return True
    # The parameters that the page may name are those that are files.
    transcript = ROOT / Path(path).parent / "transcripts" / f"{parameter.rstrip(']')}.jsonl"
    return transcript.is_file()


@cache
def named_in(path: str) -> frozenset[str]:
    """Return names of test functions and of test classes, with their methods, in a file."""
    names: set[str] = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.ClassDef(name=name, body=body):
                names.add(name)
                functions = (ast.FunctionDef, ast.AsyncFunctionDef)
                names |= {f"{name}::{inner.name}" for inner in body if isinstance(inner, functions)}
            case ast.Assign(targets=[ast.Name(id=name)]):
                names.add(name)
            case _:
                pass
    return frozenset(name for name in names if name.lower().startswith("test"))


def test_every_line_has_a_row_and_every_id_a_test() -> None:
    assert faults_of(PAGE.read_text()) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("| one mailbox passes", "| one postbox passes"),
        ("::test_ruling`", "::test_rulings`"),
        ("`tests/session/test_overlap.py`", "`tests/session/test_overlaps.py`"),
        ("| 9: ", "| 8: "),
        ("test_transcript[resume_replay]", "test_transcript[resume_replays]"),
        ("not applicable, because the service has no other path", "no, for it has no other path"),
    ],
)
def test_a_fault_in_the_page_is_found(old: str, new: str) -> None:
    page = PAGE.read_text()
    assert old in page
    changed = page.replace(old, new)
    if old.startswith("not"):
        changed = changed.replace(
            "`tests/serve_app/test_reported_faults.py::"
            "test_the_second_of_two_requests_is_refused_and_the_first_answered`",
            "nothing",
        )
    assert faults_of(changed) != []


SHIPPED = ("session", "stages", "serve_app", "clients", "deploy", "tools", "docs", "requirements")
FORBIDDEN = {
    "a local path": r"/home/\w|/Users/\w|/root/\w|C:\\\\Users",
    "a token": r"\b(?:sk|rk)-[A-Za-z0-9]{20}|\bgh[pousr]_\w{20}|\bhf_[A-Za-z]{20}|://[^/\s:]+:[^@/\s]+@",
    "a proxy": r"(?i)\bhttps?_proxy\s*=\s*\S",
    "a probe": r"\bbreakpoint\(\)|\bset_trace\(|\bcProfile\b|PROFILE_LOGS",
    "a switch for tests": r"PYTEST_CURRENT_TEST|\bif .*\bis_test(?:ing)?\b|environ.*\bTESTING\b",
}


def shipped_files() -> list[Path]:
    text = {".py", ".md", ".yaml", ".js", ".css", ".html", ".in", ".toml"}
    return [f for folder in SHIPPED for f in (ROOT / folder).rglob("*") if f.suffix in text]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_local_path_token_probe_or_test_switch_is_present(what: str) -> None:
    pattern = re.compile(FORBIDDEN[what])
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for file in shipped_files()
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("a local path", "MODEL = '/home/anna/model'"),
        ("a token", "key = 'sk-" + "a" * 24 + "'"),
        ("a token", "url = 'http://anna:secret@proxy:3128'"),
        ("a proxy", "HTTPS_PROXY=proxy:3128"),
        ("a probe", "    breakpoint()"),
        ("a switch for tests", "if 'PYTEST_CURRENT_TEST' in os.environ:"),
    ],
)
def test_the_search_finds_what_it_looks_for(what: str, line: str) -> None:
    assert re.search(FORBIDDEN[what], line)
