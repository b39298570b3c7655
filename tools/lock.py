"""Writes requirements/*.lock from requirements/*.in: every package pinned, every file hashed.

Rule 1: a lock is installed with `pip install --no-deps --require-hashes`, so it must be complete.
Rule 2: packages in without.txt never enter a lock, whatever declares them.
Rule 3: pins stay as they are unless `--upgrade` is given. dev.lock follows serve.lock.
"""

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
REQUIREMENTS = Path("requirements")
HEADER = (
    "# Made by `make lock` from {source}. Install with: pip install --no-deps --require-hashes\n"
)


def compile_lock(name: str, options: list[str]) -> None:
    """Resolve requirements/NAME.in for Linux, macOS and Windows into requirements/NAME.lock."""
    source, target = REQUIREMENTS / f"{name}.in", REQUIREMENTS / f"{name}.lock"
    command = [
        *(sys.executable, "-m", "uv", "pip", "compile", "--quiet"),
        *("--universal", "--python-version", "3.11", "--generate-hashes"),
        *("--no-emit-index-url", "--no-header", "--override", str(REQUIREMENTS / "without.txt")),
        *options,
        *(str(source), "--output-file", str(target)),
    ]
    print(f"resolving {source}", flush=True)
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    lock = ROOT / target
    lock.write_text(HEADER.format(source=source) + lock.read_text())


def main() -> None:
    """Write both locks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--upgrade", action="store_true", help="take the newest allowed versions")
    upgrade = ["--upgrade"] if parser.parse_args().upgrade else []
    compile_lock("serve", upgrade)
    compile_lock("dev", [*upgrade, "--constraint", str(REQUIREMENTS / "serve.lock")])


if __name__ == "__main__":
    main()
