"""Tells whether vLLM's packages fit this Python: `python -m tools.vllm_fits` exits with 0 or 2.

Only the standard library: it runs before anything is installed.
"""

import platform
import sys
from typing import Final

PLATFORM: Final = ("linux", "x86_64", "3.11")
OLDEST_GLIBC: Final = (2, 31)
EXIT_UNFIT: Final = 2


def misfit(system: str, machine: str, python: str, libc: tuple[str, str]) -> str | None:
    """Return what keeps vLLM from being installed, or None."""
    if (system, machine, python) != PLATFORM:
        return f"this is Python {python} on {system} {machine}"
    name, version = libc
    parts = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if name != "glibc" or parts < OLDEST_GLIBC:
        return f"this system's C library is {name or 'not glibc'} {version}".rstrip()
    return None


def main() -> int:
    """Say what is wrong, if anything is."""
    python = ".".join(map(str, sys.version_info[:2]))
    found = misfit(sys.platform, platform.machine(), python, platform.libc_ver())
    if found is None:
        return 0
    print(
        f"== vLLM can not be installed: its packages are for Python 3.11 on Linux x86-64 with "
        f"glibc 2.31 or newer, and {found}. Where there is a Python 3.11: make clean, then "
        f"make PYTHON=/path/to/python3.11 ...",
        file=sys.stderr,
    )
    return EXIT_UNFIT


if __name__ == "__main__":
    sys.exit(main())
