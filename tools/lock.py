"""Writes requirements/*.lock from requirements/*.in: every package pinned, every file hashed.

Rule 1: a lock is installed with `pip install --no-deps --require-hashes`, so it must be complete.
Rule 2: packages in a lock's overrides (without.txt and the like) that no Python meets never enter
        it, whatever declares them.
Rule 3: pins stay as they are unless `--upgrade` is given.
Rule 4: all locks go into one environment: each keeps the versions of those before it.
"""

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parent.parent
REQUIREMENTS = Path("requirements")
HEADER = (
    "# Made by `make lock` from {source}. Install with: pip install --no-deps --require-hashes\n"
)
EVERY_PLATFORM: Final = ("--universal",)
VLLM_PLATFORM: Final = ("--python-platform", "x86_64-manylinux_2_31", "--only-binary", ":all:")


@dataclass(frozen=True, slots=True)
class Lock:
    """How one lock is made."""

    name: str
    platform: tuple[str, ...]
    overrides: str
    follows: tuple[str, ...] = ()
    """The locks whose versions it keeps."""


LOCKS: Final = (
    Lock("serve", EVERY_PLATFORM, "without.txt"),
    Lock("vllm", VLLM_PLATFORM, "vllm-without.txt", follows=("serve",)),
    Lock("vllm-cuda", VLLM_PLATFORM, "vllm-cuda-without.txt", follows=("serve",)),
    Lock("dev", EVERY_PLATFORM, "dev-without.txt", follows=("serve", "vllm")),
)


def compile_lock(lock: Lock, options: list[str]) -> None:
    """Resolve requirements/NAME.in into requirements/NAME.lock."""
    source, target = REQUIREMENTS / f"{lock.name}.in", REQUIREMENTS / f"{lock.name}.lock"
    constraints = [
        part
        for other in lock.follows
        for part in ("--constraint", str(REQUIREMENTS / f"{other}.lock"))
    ]
    command = [
        *(sys.executable, "-m", "uv", "pip", "compile", "--quiet"),
        *(*lock.platform, "--python-version", "3.11", "--generate-hashes"),
        *("--no-emit-index-url", "--no-header"),
        *("--override", str(REQUIREMENTS / lock.overrides)),
        *constraints,
        *options,
        *(str(source), "--output-file", str(target)),
    ]
    print(f"resolving {source}", flush=True)
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    written = ROOT / target
    written.write_text(HEADER.format(source=source) + written.read_text())


def main() -> None:
    """Write all locks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--upgrade", action="store_true", help="take the newest allowed versions")
    upgrade = ["--upgrade"] if parser.parse_args().upgrade else []
    for lock in LOCKS:
        compile_lock(lock, upgrade)


if __name__ == "__main__":
    main()
