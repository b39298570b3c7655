"""The suite must notice: each named one-line fault makes the kernel's tests fail."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.session.mutants import MUTANTS, Mutant
from tests.session.verdict import NOTICED

ROOT = Path(__file__).parents[2]
ALL = (
    *("tests/session", "tests/sim"),
    *("--ignore=tests/session/test_flat.py", "--ignore=tests/session/test_mutants.py"),
)
"""The kernel's tests and the simulated worlds: one may notice what the named test does not."""
NO_MUTANT = Mutant("no mutant", "machine.py", "def validate(self)", "def validate(self)")


def survivor(mutant: Mutant, place: Path) -> str:
    """Return what a mutant's tests say when they do not notice it; nothing when they do."""
    # What is compiled comes along: most of a mutant's short life would go into compiling it again.
    for folder in ("session", "tests/session", "tests/sim", "docs"):
        shutil.copytree(ROOT / folder, place / folder)
    shutil.copy(ROOT / "pyproject.toml", place)
    target = place / "session" / mutant.module
    source = target.read_text()
    assert source.count(mutant.line) == 1, "the mutant's line has moved: adapt the mutant"
    target.write_text(source.replace(mutant.line, mutant.wrong))
    said = ""
    for tests in ((f"tests/{mutant.by}",), ALL):
        run = _run(place, tests)
        if run.returncode == NOTICED:
            return ""
        said += f"exit status {run.returncode}\n{run.stdout}"
    return f"survived: {mutant.name}\n{said[-2000:]}"


def _run(place: Path, tests: tuple[str, ...]) -> "subprocess.CompletedProcess[str]":
    # Without output capture: what the verdict says would else be lost with the process.
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "tests.session.verdict"]
    command += [
        "-p",
        "pytest_asyncio.plugin",
        "-p",
        "pytest_timeout",
        "-p",
        "no:cacheprovider",
        *tests,
    ]
    return subprocess.run(
        command,
        cwd=place,
        capture_output=True,
        text=True,
        timeout=140,
        check=False,
        # To look for all plugins that there are would be half of a short run.
        env={
            **os.environ,
            "KERNEL_TESTS_NO_SHRINK": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_suite_kills(mutant: Mutant, tmp_path: Path) -> None:
    said = survivor(mutant, tmp_path)
    assert not said, said


@pytest.mark.timeout(300)
def test_what_kills_a_mutant_is_the_mutant(tmp_path: Path) -> None:
    said = survivor(NO_MUTANT, tmp_path)
    assert said.count(" passed") == 2, said
    assert "failed" not in said
    assert "error" not in said
