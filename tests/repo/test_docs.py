"""What the documents say is what the code does."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools.gen_docs import dataclass_rows, pages

ROOT = Path(__file__).parents[2]


def section(text: str, heading: str) -> str:
    """Return the text under a second-level heading."""
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def commands(text: str) -> list[str]:
    """Return the lines of all shell blocks."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


@pytest.mark.parametrize("path", ["docs/errors.md", "docs/config.md"])
def test_a_generated_page_is_up_to_date(path: str) -> None:
    assert (ROOT / path).read_text() == pages()[path], "run `make docs`"


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
