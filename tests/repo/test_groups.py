"""Every test is in exactly one group of `make test`, and that group looks where it stands."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.groups import GROUPS, MARKERS, PURE, group_of, looks_into, lost_test

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"


def test_of_several_markers_the_first_names_the_group() -> None:
    assert group_of([]) == group_of(["timeout", "asyncio"]) == PURE
    assert [group_of(["timeout", marker]) for marker in MARKERS] == list(MARKERS)
    assert group_of(["models", "serve"]) == "serve"
    assert group_of(["serve", "browser", "clients"]) == "clients"


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_looks_into_a_folder_that_is_there(group: str) -> None:
    folders = [path for path in TESTS.iterdir() if path.is_dir()]
    assert [path for path in folders if looks_into(group, path / "conftest.py")]


def test_the_group_without_models_imports_none() -> None:
    stage = TESTS / "stages" / "minicpmo"
    assert not looks_into(PURE, stage / "test_flow.py")
    assert looks_into("models", stage / "test_flow.py")
    assert looks_into(PURE, stage / "test_config.py")


@pytest.mark.parametrize(
    ("folder", "name", "group"),
    [
        ("vllm", "test_lost.py", PURE),
        ("session", "test_lost.py", "serve"),
        ("tools", "test_lost.py", "browser"),
        ("stages/minicpmo", "test_flow.py", PURE),
    ],
)
def test_what_its_group_would_not_find_has_a_group_that_does_not_look(
    folder: str, name: str, group: str
) -> None:
    path = TESTS / folder / name
    assert not looks_into(group, path)
    assert f"{name}: `make test-{group}` would not find it here" in lost_test(path, group)


@pytest.mark.timeout(120)
def test_one_that_its_group_would_not_find_is_an_error_of_the_run(tmp_path: Path) -> None:
    for name in ("tests/conftest.py", "tests/support", "tests/fakes", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    file = tmp_path / "tests" / "vllm" / "test_lost.py"
    file.parent.mkdir()
    file.write_text("def test_lost() -> None:\n    pass\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests"]
    run = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert "test_lost.py: `make test-pure` would not find it here" in run.stderr
