"""Where the tools that ask a running service have an admin key from.

Rule 1: never from the command line, which everybody on the machine can read.
Rule 2: KEY in the environment comes first, then the file that is named, then what the service
        itself reads in the environment.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Final

KEY_VARIABLE: Final = "KEY"
SERVICE_VARIABLE: Final = "DUPLEX_ADMIN_KEYS"
"""As in serve_app.settings, which a tool that is to start at once does not import."""


def new_parser(module: str, description: str | None) -> argparse.ArgumentParser:
    """Return what reads a command line that can name a file of keys."""
    # Abbreviated, --key-file would take `--key SECRET`, and the key would stand in the open.
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}", description=description, allow_abbrev=False
    )
    parser.add_argument(
        "--key-file",
        type=Path,
        help=f"file with one admin key a line, where {KEY_VARIABLE} is not in the environment; "
        f"without either, the first of {SERVICE_VARIABLE}",
    )
    return parser


def find_key(environ: Mapping[str, str], file: Path | None) -> str | None:
    """Return the admin key to send; None where there is none."""
    own = environ.get(KEY_VARIABLE, "").strip()
    return own or (None if file is None else first_key(file)) or service_key(environ)


def service_key(environ: Mapping[str, str]) -> str | None:
    """Return the first admin key that a service with this environment has from it."""
    listed = environ.get(SERVICE_VARIABLE, "").split(",")
    return next((key.strip() for key in listed if key.strip()), None)


def first_key(file: Path) -> str | None:
    """Return the first key of a file with one a line; None where there is none."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    words = (line.split() for line in lines if not line.startswith("#"))
    return next((word[0] for word in words if word), None)
