"""Under which conditions figures were made."""

import os
import platform
import subprocess

from tools.running_service import ROOT


def conditions(what: str) -> str:
    """Say how the figures are made."""
    # A copy of the tree without its history, as on a borrowed machine, is told its revision.
    revision = os.environ.get("BENCH_REVISION") or git("rev-parse", "--short", "HEAD")
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"`python -m tools.bench {what}` at {revision}, {os.cpu_count()} cores, "
        f"{platform.machine()}, Python {platform.python_version()}, load before the run {load}\n"
    )


def git(*arguments: str) -> str:
    """Return what a git command says about this working tree."""
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.rstrip()
