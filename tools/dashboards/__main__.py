"""Writes dashboards and rules, or prints their queries, one a line: `list`, with a window or 1m."""

import sys
from pathlib import Path
from typing import Final

from tools.dashboards.files import expressions, generated

ROOT: Final = Path(__file__).parents[2]


def main(arguments: list[str]) -> None:
    """Do what the command line says."""
    match arguments:
        case []:
            for path, text in generated().items():
                (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
                (ROOT / path).write_text(text)
                print(f"wrote {path}")
        case ["list", *window] if len(window) <= 1:
            print("\n".join(expressions(*window or ["1m"])))
        case _:
            sys.exit("usage: python -m tools.dashboards [list [WINDOW]]")


if __name__ == "__main__":
    main(sys.argv[1:])
