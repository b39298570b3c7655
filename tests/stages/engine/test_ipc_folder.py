"""Folders of sockets: one's own, and those that killed processes left."""

import os
import stat
import subprocess
import sys
from pathlib import Path

from stages.engine.ipc_folder import PREFIX, is_orphan, make_ipc_folder


def dead_pid() -> int:
    """Return the number of a process that was."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def test_nobody_else_can_enter_it(tmp_path: Path) -> None:
    folder = make_ipc_folder(tmp_path)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert folder.name.startswith(f"{PREFIX}{os.getpid()}-")
    assert make_ipc_folder(tmp_path) != folder


def test_what_a_dead_process_left_is_taken_away_and_nothing_else(tmp_path: Path) -> None:
    left = tmp_path / f"{PREFIX}{dead_pid()}-abc"
    alive = tmp_path / f"{PREFIX}{os.getpid()}-abc"
    foreign = tmp_path / f"{PREFIX}notes"
    link = tmp_path / f"{PREFIX}{dead_pid()}-link"
    for folder in (left, alive, foreign):
        folder.mkdir()
        (folder / "socket").touch()
    link.symlink_to(foreign)
    make_ipc_folder(tmp_path)
    assert not left.exists()
    assert all((folder / "socket").exists() for folder in (alive, foreign, link))


WRITES = """
import os, subprocess, sys, tempfile
from stages.engine.ipc_folder import keep_temporary_files_apart
keep_temporary_files_apart()
tempfile.mkstemp()
subprocess.run([sys.executable, "-c", "import tempfile; tempfile.mkdtemp()"], check=True)
if sys.argv[1] == "dies":
    os.kill(os.getpid(), 9)
"""
"""An engine's process, and one that it starts."""


def test_what_an_engine_leaves_goes_with_it_or_with_the_next_one(tmp_path: Path) -> None:
    def run(how: str) -> int:
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        command = [sys.executable, "-c", WRITES, how]
        return subprocess.run(command, env=environment, check=False).returncode

    assert run("dies") == -9
    [left] = tmp_path.iterdir()
    assert len(list(left.iterdir())) == 2
    assert run("ends") == 0
    assert list(tmp_path.iterdir()) == []


TOGETHER = """
import sys
from pathlib import Path
from stages.engine.ipc_folder import make_ipc_folder
sys.stdin.readline()
make_ipc_folder(Path(sys.argv[1]))
"""


def test_processes_that_start_together_may_take_the_same_folders_away(tmp_path: Path) -> None:
    gone = dead_pid()
    for number in range(200):
        (tmp_path / f"{PREFIX}{gone}-{number}").mkdir()
    command = [sys.executable, "-c", TOGETHER, str(tmp_path)]
    starting = [subprocess.Popen(command, stdin=subprocess.PIPE, text=True) for _ in range(3)]
    for process in starting:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in starting:
        process.communicate()
    assert [process.returncode for process in starting] == [0, 0, 0]
    assert not list(tmp_path.glob(f"{PREFIX}{gone}-*"))


def test_a_folder_that_has_just_gone_is_nobodys(tmp_path: Path) -> None:
    gone = tmp_path / f"{PREFIX}{dead_pid()}-gone"
    assert not is_orphan(gone)
    gone.mkdir()
    assert is_orphan(gone)
