"""A child that vLLM starts ends when its parent is killed; the parent itself watches nobody."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from stages.vllm_plugin import WATCHER, end_with_parent

ROOT = Path(__file__).parents[2]

PARENT = """
import multiprocessing, os, sys, time
from stages.vllm_plugin import end_with_parent

def child(is_called):
    if is_called:
        end_with_parent()
    os.write(1, b"child\\n")  # a line at once: unbuffered, print writes it in pieces
    time.sleep(600)

if __name__ == "__main__":
    method, with_brother = sys.argv[1:]
    end_with_parent()
    context = multiprocessing.get_context(method)
    context.Process(target=child, args=(method == "spawn",)).start()
    if with_brother == "brother" and os.fork() == 0:
        os.write(1, f"brother {os.getpid()}\\n".encode())
        os.close(1)
        time.sleep(600)
    time.sleep(600)
"""


@pytest.mark.parametrize(
    ("method", "brother"), [("spawn", "alone"), ("fork", "alone"), ("fork", "brother")]
)
def test_children_of_a_killed_process_end(tmp_path: Path, method: str, brother: str) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT, encoding="utf-8")
    parent = subprocess.Popen(
        [sys.executable, str(script), method, brother],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        text=True,
    )
    assert parent.stdout is not None
    lines = [parent.stdout.readline().split() for _ in range(1 + (brother == "brother"))]
    parent.send_signal(signal.SIGKILL)
    try:
        # The pipe ends when the last process that could write to it has.
        assert parent.stdout.read() == ""
    finally:
        parent.wait()
        parent.stdout.close()
        for words in lines:
            if words[0] == "brother":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(words[1]), signal.SIGKILL)
    assert ["child"] in lines


def test_a_process_that_is_no_child_watches_nobody() -> None:
    end_with_parent()
    assert WATCHER not in [thread.name for thread in threading.enumerate()]
