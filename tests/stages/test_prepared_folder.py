"""A prepared folder is whole or made anew, whoever asks, and however the last one ended."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from stages.prepared_folder import MANIFEST, cache_root, find_fault, prepared_folder

SPAWN = multiprocessing.get_context("spawn")


class Maker:
    """Writes two files and counts how often."""

    def __init__(self, text: str = "weights") -> None:
        self.text = text
        self.made = 0

    def __call__(self, folder: Path) -> None:
        self.made += 1
        (folder / "model.bin").write_text(self.text)
        (folder / "tokenizer.json").write_text("{}")


def ignore(line: str) -> None:
    """Say nothing."""


def prepare(root: Path, make: Callable[[Path], None], stamp: str = "v1") -> Path:
    return prepared_folder(root, "net", stamp, make, ignore)


def test_it_is_made_once(tmp_path: Path) -> None:
    make = Maker()
    folder = prepare(tmp_path / "deep" / "root", make)
    assert (folder / "model.bin").read_text() == "weights"
    assert prepare(tmp_path / "deep" / "root", make) == folder
    assert make.made == 1


def test_another_version_replaces_it(tmp_path: Path) -> None:
    prepare(tmp_path, Maker("old"))
    folder = prepare(tmp_path, Maker("new"), stamp="v2")
    assert (folder / "model.bin").read_text() == "new"
    assert find_fault(folder, "v1") == "made for another version"


@pytest.mark.parametrize(
    ("harm", "fault"),
    [
        (lambda folder: (folder / "model.bin").write_text("weighty"), "model.bin"),
        (lambda folder: (folder / "model.bin").write_text("weight"), "model.bin"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer.json"),
        (lambda folder: (folder / MANIFEST).write_text("{"), "manifest"),
        (lambda folder: (folder / MANIFEST).write_text("[]"), "manifest"),
        (lambda folder: (folder / MANIFEST).unlink(), "not there"),
    ],
)
def test_a_damaged_folder_is_found_and_replaced(
    tmp_path: Path, harm: Callable[[Path], object], fault: str
) -> None:
    folder = prepare(tmp_path, Maker())
    harm(folder)
    assert fault in (find_fault(folder, "v1") or "")
    make = Maker()
    prepare(tmp_path, make)
    assert make.made == 1
    assert find_fault(folder, "v1") is None
    assert {file.name for file in folder.iterdir()} == {"model.bin", "tokenizer.json", MANIFEST}


def test_a_failed_make_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        prepare(tmp_path, fail)
    assert [file.name for file in tmp_path.iterdir()] == [".net.lock"]


def test_the_root_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUPLEX_CACHE", "/somewhere")
    assert cache_root() == Path("/somewhere")
    monkeypatch.delenv("DUPLEX_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert cache_root() == Path("/cache/duplex")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert cache_root() == Path("/home/me/.cache/duplex")


# --- several processes ---------------------------------------------------------------------------


class SlowMaker:
    """Notes that it works, and waits until it may go on."""

    def __init__(self, notes: Path, begun: Event, may_end: Event) -> None:
        self.notes, self.begun, self.may_end = notes, begun, may_end

    def __call__(self, folder: Path) -> None:
        with self.notes.open("a") as notes:
            notes.write(f"{os.getpid()}\n")
        (folder / "model.bin").write_text("slow")
        self.begun.set()
        assert self.may_end.wait(15)


class WaitNote:
    """Sets an event when the caller is told to wait."""

    def __init__(self, waiting: Event) -> None:
        self.waiting = waiting

    def __call__(self, line: str) -> None:
        if "waiting" in line:
            self.waiting.set()


def run_prepare(root: Path, make: SlowMaker, waiting: Event) -> None:
    folder = prepared_folder(root, "net", "v1", make, WaitNote(waiting))
    assert (folder / "model.bin").read_text() == "slow"


@pytest.mark.timeout(60)
def test_of_two_processes_one_makes_it_and_the_other_waits(tmp_path: Path) -> None:
    begun, may_end, waiting = SPAWN.Event(), SPAWN.Event(), SPAWN.Event()
    notes = tmp_path / "notes"
    make = SlowMaker(notes, begun, may_end)
    both = [SPAWN.Process(target=run_prepare, args=(tmp_path, make, waiting)) for _ in range(2)]
    for process in both:
        process.start()
    assert begun.wait(30)
    assert waiting.wait(30)
    may_end.set()
    for process in both:
        process.join(30)
    assert [process.exitcode for process in both] == [0, 0]
    assert len(notes.read_text().splitlines()) == 1


@pytest.mark.timeout(60)
def test_a_killed_maker_leaves_no_lock_and_no_litter(tmp_path: Path) -> None:
    begun, never, waiting = SPAWN.Event(), SPAWN.Event(), SPAWN.Event()
    make = SlowMaker(tmp_path / "notes", begun, never)
    victim = SPAWN.Process(target=run_prepare, args=(tmp_path / "root", make, waiting))
    victim.start()
    assert begun.wait(30)
    assert victim.pid is not None
    os.kill(victim.pid, signal.SIGKILL)
    victim.join(10)
    assert list((tmp_path / "root").glob(".partial-*"))
    prepare(tmp_path / "root", Maker())
    assert {file.name for file in (tmp_path / "root").iterdir()} == {"net", ".net.lock"}
