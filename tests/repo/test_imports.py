"""The direction of imports: as written in pyproject.toml, and as it really loads."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = {"ray", "fastapi", "starlette", "websockets", "torch", "vllm", "numpy"}


def modules_of(folder: str) -> list[str]:
    """Return the dotted names of all modules in `folder`."""
    files = sorted((ROOT / folder).rglob("*.py"))
    parts = [file.relative_to(ROOT).with_suffix("").parts for file in files]
    return [".".join(part[:-1] if part[-1] == "__init__" else part) for part in parts]


def loaded_by(program: str) -> set[str]:
    """Run `program` in a fresh interpreter; return the top-level modules it loaded.

    Modules that the interpreter itself had loaded before do not count.
    """
    code = (
        "import sys, json; before = set(sys.modules)\n"
        f"{program}\n"
        "print(json.dumps(sorted({m.partition('.')[0] for m in set(sys.modules) - before})))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return set(json.loads(answer.stdout.splitlines()[-1]))


def test_the_contracts_of_import_linter_hold() -> None:
    # What the console script calls; it may not lie beside this interpreter.
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    answer = subprocess.run(
        [sys.executable, "-c", program, "--no-cache"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stdout
    assert "0 broken" in answer.stdout


def test_the_guard_notices_a_module_that_is_loaded() -> None:
    assert {"wave", "colorsys"} <= loaded_by("import wave, colorsys")


def test_the_kernel_loads_no_clock_no_tasks_and_no_libraries() -> None:
    kernel = [name for name in modules_of("session") if not name.startswith("session.realtime")]
    assert len(kernel) > 10
    loaded = loaded_by("import " + ", ".join(kernel))
    impure = {"asyncio", "random", "uuid", "logging", "socket", "threading", "subprocess"}
    assert loaded & (HEAVY | impure | {"pydantic"}) == set()
    assert not loaded & {"stages", "serve_app", "clients"}


def test_the_wire_loads_pydantic_and_no_other_library() -> None:
    loaded = loaded_by("import " + ", ".join(modules_of("session/realtime")))
    assert "pydantic" in loaded
    assert loaded & HEAVY == set()


def test_the_client_loads_none_of_the_service() -> None:
    loaded = loaded_by("import " + ", ".join(modules_of("clients")))
    assert "clients" in loaded
    assert loaded & {"session", "stages", "serve_app", "ray", "fastapi", "torch"} == set()


@pytest.mark.parametrize("name", ["scripted", "embedded"])
def test_naming_a_plugin_loads_no_engine(name: str) -> None:
    loaded = loaded_by(f"from stages.plugins import load_plugin; load_plugin({name!r})")
    assert "stages" in loaded
    assert loaded & {"ray", "torch", "vllm", "fastapi", "serve_app"} == set()


def test_no_installed_package_owns_our_top_level_names() -> None:
    program = (
        "import importlib.util\n"
        "for name in ('session', 'stages', 'serve_app', 'clients', 'tools', 'tests'):\n"
        "    spec = importlib.util.find_spec(name)\n"
        "    print(*spec.submodule_search_locations)\n"
        "print('[]')"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True
    )
    for line in answer.stdout.splitlines()[:-1]:
        assert Path(line.split(" ")[0]).parent == ROOT, line
