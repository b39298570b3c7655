"""The engine's processes end when the process that started them is killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.vllm


def test_no_process_outlives_a_killed_service(tiny_folder: Path) -> None:
    service = subprocess.Popen(
        [sys.executable, "-m", "tests.support.engine_to_kill", str(tiny_folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        text=True,
    )
    assert service.stdout is not None
    with service.stdout as said:
        for line in said:
            if line == "running\n":
                break
        else:
            raise AssertionError("the engine did not start")
        service.send_signal(signal.SIGKILL)
        # The pipe ends when the last process that could write to it has.
        said.read()
    assert service.wait() == -signal.SIGKILL
