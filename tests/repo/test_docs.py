"""What the documents say is what the code does."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools.gen_docs import dataclass_rows, pages

ROOT = Path(__file__).parents[2]
PAGES = pages()


def section(text: str, heading: str) -> str:
    """Return the text under a second-level heading."""
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def commands(text: str) -> list[str]:
    """Return the lines of all shell blocks."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


@pytest.mark.parametrize("path", PAGES)
def test_a_generated_page_is_up_to_date(path: str) -> None:
    assert (ROOT / path).read_text() == PAGES[path], "run `make docs`"


def test_no_page_is_left_of_a_wire_that_is_no_more() -> None:
    written = {f"docs/wire/{path.name}" for path in (ROOT / "docs" / "wire").iterdir()}
    assert written == {path for path in PAGES if path.startswith("docs/wire/")}


@dataclass
class Silent:
    told: int = 1
    """Said."""
    untold: int = 2


def test_a_setting_without_a_meaning_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"Silent.*\['untold'\]"):
        dataclass_rows(Silent)


def test_the_readme_starts_with_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text()
    assert commands(readme)[:2] == ["make serve", "make test"]


def test_ci_runs_the_test_command_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    assert commands(section(readme, "Test")) == ["make test"]
    assert "README.md" in (ROOT / ".ci" / "run").read_text()


def test_the_readme_has_a_line_for_every_folder() -> None:
    readme = (ROOT / "README.md").read_text()
    hidden = {"build", "requirements"}
    folders = {p.name for p in ROOT.iterdir() if p.is_dir() and not p.name.startswith(".")}
    code = {f for f in folders - hidden if not f.endswith(".egg-info") and f != "__pycache__"}
    assert [f for f in sorted(code) if f"`{f}/`" not in readme] == []


def test_links_between_documents_lead_somewhere() -> None:
    pages_with_links = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages_with_links
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert broken == []


def anchors(page: Path) -> set[str]:
    """Return what a link can name on a page, made from its headings as GitHub does."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_links_to_sections_lead_somewhere() -> None:
    broken = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for target, section in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
            there = page.parent / target if target else page
            if there.suffix == ".md" and section not in anchors(there):
                broken.append(f"{page.relative_to(ROOT)}: {target}#{section}")
    assert broken == []


def test_make_help_names_every_target_the_documents_use() -> None:
    makefile = (ROOT / "Makefile").read_text()
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    used = {
        target
        for page in documents
        for target in re.findall(r"(?:^|`)make ([a-z][a-z-]*)", page.read_text(), re.MULTILINE)
    }
    assert used
    assert [t for t in sorted(used) if f"\n{t}:" not in makefile] == []
