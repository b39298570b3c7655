"""Which test files can not even be imported where a layer of the environment is not installed.

Such a file is left out as a whole, and the run says so at its head and at its end: vLLM and torch
exist for one platform only, and the tests that need neither must run everywhere.
"""

import ast
import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
LAYER: Final = (
    "torch",
    "vllm",
    "transformers",
    "safetensors",
    "zmq",
    "msgspec",
    "PIL",
    "kaldi_native_fbank",
)
"""What requirements/vllm.lock installs and code imports at the top of a module."""


@cache
def missing() -> frozenset[str]:
    """Return the packages of the layer that are not installed."""
    return frozenset(name for name in LAYER if importlib.util.find_spec(name) is None)


def needs_more_than_is_here(path: Path) -> bool:
    """Whether this is a test file that can not be imported here."""
    return path.name.startswith("test_") and path.suffix == ".py" and needs(path, missing())


def needs(file: Path, packages: frozenset[str]) -> bool:
    """Whether importing `file` would import one of `packages`, through our own modules too."""
    return bool(packages) and not _reached(file).isdisjoint(packages)


@cache
def _reached(file: Path) -> frozenset[str]:
    """Return the top names of all that importing `file` imports, ours included."""
    seen: set[Path] = set()
    names: set[str] = set()
    open_files = [file]
    while open_files:
        at = open_files.pop()
        if at in seen:
            continue
        seen.add(at)
        for module in _imports(at):
            names.add(module.partition(".")[0])
            open_files += _files(module)
    return frozenset(names)


@cache
def _imports(file: Path) -> tuple[str, ...]:
    """Return what a module imports when it is itself imported: not what its functions do."""
    return tuple(_in_body(ast.parse(file.read_text()).body))


def _in_body(body: list[ast.stmt]) -> Iterator[str]:
    for statement in body:
        match statement:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield module
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.With(body=inner) | ast.ClassDef(body=inner):
                yield from _in_body(inner)
            case ast.Try(body=inner, orelse=after):
                yield from _in_body([*inner, *after])
            case _:
                pass


@cache
def _files(module: str) -> tuple[Path, ...]:
    """Return the files of a module of ours, its packages' included."""
    parts = module.split(".")
    found: list[Path] = []
    for length in range(1, len(parts) + 1):
        base = ROOT.joinpath(*parts[:length])
        found += [
            path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()
        ]
    return tuple(found)
