"""docs/reports.md names tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reports.md").read_text()


def named_tests(text: str) -> list[tuple[str, str]]:
    """Return file and function of each test in a text; `::name` goes on with the file before."""
    found = []
    file = ""
    for path, name in re.findall(r"`(tests/[\w/]+\.py)?::(\w+)`", text):
        file = path or file
        found.append((file, name))
    return found


def rows(text: str) -> list[list[str]]:
    """Return the cells of each row of the page's tables."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if row[0] not in ("report", "---")]


def test_a_test_may_be_named_after_the_file_of_the_one_before() -> None:
    text = "`tests/a.py::test_one`, `::test_two` and `tests/b.py::test_three`"
    files = ["tests/a.py", "tests/a.py", "tests/b.py"]
    assert [file for file, _ in named_tests(text)] == files


def test_every_named_test_exists() -> None:
    named = named_tests(PAGE)
    assert len(named) > 50
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not (ROOT / file).is_file() or f"def {name}(" not in (ROOT / file).read_text()
    ]
    assert missing == []


def test_every_row_names_a_report_and_a_test_or_a_reason() -> None:
    for row in rows(PAGE):
        assert len(row) == 3, row
        report, could, here = row
        assert re.search(r"[\w.-]+/[\w.-]+#\d+", report), report
        assert could
        assert "`tests/" in here or len(here) > 60, report
    assert len(rows(PAGE)) > 40
