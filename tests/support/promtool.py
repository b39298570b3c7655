"""The checks of Prometheus itself, where `promtool` is installed; elsewhere a run says so."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def installed(program: str, otherwise: str) -> str:
    """Find a program of Prometheus, or skip; where DUPLEX_REQUIRE_PROMETHEUS=1, fail instead."""
    path = shutil.which(program)
    if path is not None:
        return path
    if os.environ.get("DUPLEX_REQUIRE_PROMETHEUS") == "1":
        pytest.fail(f"no {program} on PATH: apt-get install prometheus")
    pytest.skip(f"LEFT OUT: {program} is not installed, so {otherwise}")


def promtool(*arguments: str, folder: Path) -> tuple[int, str]:
    """Return the exit status and everything said."""
    program = installed("promtool", "Prometheus judged no rule")
    done = subprocess.run(
        [program, *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout + done.stderr
