"""Where torch and vLLM can not be installed, exactly the tests that need them are left out."""

from pathlib import Path

import pytest

from tests.support.left_out import ROOT, needs
from tools.vllm_fits import misfit

TORCH = frozenset({"torch"})


def test_what_imports_torch_through_our_own_modules_needs_it(tmp_path: Path) -> None:
    test = tmp_path / "test_it.py"
    test.write_text("from stages.minicpmo import vllm_model\n")
    assert needs(test, TORCH)
    assert not needs(test, frozenset())


@pytest.mark.parametrize(
    "text",
    [
        "from stages.minicpmo.policy import decide\n",
        "def test_it() -> None:\n    import torch\n",
        "# import torch\n",
    ],
)
def test_what_does_not_is_kept(tmp_path: Path, text: str) -> None:
    test = tmp_path / "test_it.py"
    test.write_text(text)
    assert not needs(test, TORCH)


def test_most_tests_need_neither() -> None:
    every = list((ROOT / "tests").rglob("test_*.py"))
    assert len([file for file in every if needs(file, TORCH)]) < len(every) / 2
    assert not needs(Path(__file__), TORCH)


GLIBC = ("glibc", "2.36")


def test_one_platform_has_vllm() -> None:
    assert misfit("linux", "x86_64", "3.11", GLIBC) is None
    assert misfit("linux", "x86_64", "3.11", ("glibc", "2.31")) is None


@pytest.mark.parametrize(
    ("system", "machine", "python", "libc", "word"),
    [
        ("darwin", "arm64", "3.11", ("", ""), "darwin arm64"),
        ("linux", "aarch64", "3.11", GLIBC, "aarch64"),
        ("linux", "x86_64", "3.12", GLIBC, "Python 3.12"),
        ("linux", "x86_64", "3.11", ("", ""), "not glibc"),
        ("linux", "x86_64", "3.11", ("glibc", "2.28"), "glibc 2.28"),
    ],
)
def test_others_are_told_what_is_wrong(
    system: str, machine: str, python: str, libc: tuple[str, str], word: str
) -> None:
    assert word in (misfit(system, machine, python, libc) or "")
