"""Checks text files before a commit: YAML can be read, lines end cleanly, files end in a newline.

Say which files: ``python -m tools.check_text FILE...``. Exit status 1 if any is wrong.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import yaml


def faults(path: Path) -> Iterator[str]:
    """Yield what is wrong with one file; files that are not text have no faults."""
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError:
        return
    if text and not text.endswith("\n"):
        yield f"{path}: does not end in a newline"
    if text.endswith("\n\n"):
        yield f"{path}: ends in an empty line"
    for number, line in enumerate(text.split("\n"), start=1):
        if line != line.rstrip():
            yield f"{path}:{number}: ends in white space"
    if path.suffix in {".yaml", ".yml"}:
        try:
            list(yaml.safe_load_all(text))
        except yaml.YAMLError as error:
            yield f"{path}: {error}"


def main(names: list[str]) -> int:
    """Print all faults of the named files; return the exit status."""
    found = [fault for name in names for fault in faults(Path(name))]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
