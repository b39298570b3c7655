"""The house style's hard limits of size and shape, measured on the syntax tree."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("session", "stages", "serve_app", "clients", "tools")
MAX_MODULE_LINES = 400
MAX_TEST_MODULE_LINES = 600
MAX_FUNCTION_LINES = 60
MAX_PUBLIC_METHODS = 15

Function = ast.FunctionDef | ast.AsyncFunctionDef


def python_files(*folders: str) -> list[Path]:
    """Return all Python files under the folders, by path from the root."""
    return sorted(
        file.relative_to(ROOT) for folder in folders for file in (ROOT / folder).rglob("*.py")
    )


def parse(file: Path) -> ast.Module:
    """Return the syntax tree of a file of this repository."""
    return ast.parse((ROOT / file).read_text())


def functions(tree: ast.AST, depth: int = 0) -> Iterator[tuple[Function, int]]:
    """Yield each function with the number of functions around it."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, Function):
            yield child, depth
            yield from functions(child, depth + 1)
        else:
            yield from functions(child, depth)


def function_lines(function: Function) -> int:
    """Return the lines of code of a function, its docstring not counted."""
    lines = (function.end_lineno or 0) - function.lineno + 1
    first = function.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        lines -= (first.end_lineno or 0) - first.lineno + 1
    return lines


def shape_faults(tree: ast.Module) -> list[str]:
    """Return what in a module breaks the limits."""
    found = [
        f"{function.name} has {function_lines(function)} lines"
        for function, _ in functions(tree)
        if function_lines(function) > MAX_FUNCTION_LINES
    ]
    found += [
        f"{function.name} is nested {depth} deep"
        for function, depth in functions(tree)
        if depth > 1
    ]
    for node in ast.walk(tree):
        match node:
            case ast.Nonlocal(names=names):
                found.append(f"nonlocal {', '.join(names)}")
            case ast.ClassDef(name=name) if "mixin" in name.lower():
                found.append(f"{name} is a mixin")
            case _:
                pass
    return found


def large_classes(tree: ast.Module) -> list[str]:
    """Return the classes with too many public methods; properties are none."""
    counts = {
        node.name: sum(
            isinstance(child, Function)
            and not child.name.startswith("_")
            and not child.decorator_list
            for child in node.body
        )
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    return [f"{name}: {count}" for name, count in counts.items() if count > MAX_PUBLIC_METHODS]


def long_function(lines: int) -> str:
    return "def f():\n" + "    pass\n" * (lines - 1)


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        (long_function(61), "f has 61 lines"),
        ("def f():\n  def g():\n    def h(): pass", "h is nested 2 deep"),
        ("def f():\n  def g():\n    nonlocal x\n  x = 1", "nonlocal x"),
        ("class SendMixin: pass", "SendMixin is a mixin"),
    ],
)
def test_the_measure_finds_a_fault(source: str, fault: str) -> None:
    assert shape_faults(ast.parse(source)) == [fault]


def test_the_measure_lets_good_code_pass() -> None:
    assert shape_faults(ast.parse(long_function(60) + "def g():\n  def h(): pass\n")) == []


@pytest.mark.parametrize("file", python_files(*PACKAGES, "tests"), ids=str)
def test_functions_are_short_and_flat(file: Path) -> None:
    assert shape_faults(parse(file)) == []


def test_the_measure_finds_a_large_class() -> None:
    methods = [f"  def m{i}(self): pass\n" for i in range(16)]
    assert large_classes(ast.parse("class C:\n" + "".join(methods))) == ["C: 16"]
    assert large_classes(ast.parse("class C:\n" + "".join(methods[1:]))) == []


@pytest.mark.parametrize("file", python_files(*PACKAGES), ids=str)
def test_classes_have_few_public_methods(file: Path) -> None:
    assert large_classes(parse(file)) == []


@pytest.mark.parametrize("file", python_files(*PACKAGES), ids=str)
def test_modules_are_short_and_say_what_they_own(file: Path) -> None:
    assert len((ROOT / file).read_text().splitlines()) <= MAX_MODULE_LINES
    assert ast.get_docstring(parse(file))


@pytest.mark.parametrize("file", python_files("tests"), ids=str)
def test_test_modules_are_short(file: Path) -> None:
    assert len((ROOT / file).read_text().splitlines()) <= MAX_TEST_MODULE_LINES


def test_every_folder_of_code_is_a_package() -> None:
    folders = {file.parent for file in python_files("session", "stages", "serve_app", "clients")}
    assert [f for f in sorted(folders) if not (ROOT / f / "__init__.py").exists()] == []


def test_tests_is_no_package() -> None:
    assert [f for f in python_files("tests") if f.name == "__init__.py"] == []
