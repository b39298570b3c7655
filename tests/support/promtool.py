"""The checks of Prometheus itself, where `promtool` is installed; elsewhere a run says so."""

import shutil
import subprocess
from pathlib import Path

import pytest


def promtool(*arguments: str, folder: Path) -> tuple[int, str]:
    """Return the exit status and everything said."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("LEFT OUT: promtool is not installed, so Prometheus judged no rule")
    done = subprocess.run(
        [program, *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout + done.stderr
