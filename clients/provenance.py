"""How a measurement was made, so that a figure in a file can be traced."""

import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Final

_PACKAGES: Final = ("websockets", "numpy", "uvicorn", "fastapi", "ray")


@dataclass(frozen=True, slots=True)
class Provenance:
    """Command, machine, versions and time of a run."""

    argv: tuple[str, ...]
    started_at: str
    host_cores: int
    load_average: float
    """Of the last minute, at the start: what else the machine was doing."""
    platform: str
    python: str
    versions: dict[str, str]
    git_revision: str | None
    """None where there is no repository; ends in -dirty when files were changed."""


def provenance(argv: Sequence[str]) -> Provenance:
    """Describe the run that is starting."""
    return Provenance(
        argv=tuple(argv),
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        host_cores=os.cpu_count() or 0,
        load_average=round(os.getloadavg()[0], 2),
        platform=platform.platform(),
        python=sys.version.split()[0],
        versions={name: version for name in _PACKAGES if (version := _version(name))},
        git_revision=_git_revision(),
    )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git_revision() -> str | None:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(
            command,
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
