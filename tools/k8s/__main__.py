"""Writes the generated files of k8s/, and removes those whose source is gone."""

from pathlib import Path
from typing import Final

from tools.k8s.generated import generated, stale

ROOT: Final = Path(__file__).parents[2]


def main() -> None:
    """Write every file."""
    for path, text in generated(ROOT).items():
        (ROOT / path).write_text(text)
        print(f"wrote {path}")
    for path in stale(ROOT):
        (ROOT / path).unlink()
        print(f"removed {path}")


if __name__ == "__main__":
    main()
