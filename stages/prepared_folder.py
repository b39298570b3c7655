"""A cached folder of prepared files that is either whole and right, or made anew.

Rule 1: the folder appears under its name by one rename, with a manifest of its files in it.
Rule 2: who makes it holds an exclusive lock; who comes second waits and finds it done. The lock
        is the operating system's, so a killed maker leaves none behind.
Rule 3: a folder whose stamp, sizes or hashes differ from the manifest is replaced.
"""

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

MANIFEST: Final = "manifest.json"
_PARTIAL: Final = ".partial-"


def cache_root() -> Path:
    """Return where prepared files live: DUPLEX_CACHE, else the user's cache folder."""
    named = os.environ.get("DUPLEX_CACHE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "duplex"


def prepared_folder(
    root: Path,
    name: str,
    stamp: str,
    make: Callable[[Path], None],
    report: Callable[[str], None],
) -> Path:
    """Return `root/name`, filled by `make` unless it is there, whole and of this `stamp`."""
    folder = root / name
    fault = find_fault(folder, stamp)
    if fault is None:
        return folder
    root.mkdir(parents=True, exist_ok=True)
    with _exclusive(root / f".{name}.lock", report):
        fault = find_fault(folder, stamp)
        if fault is not None:
            report(f"{folder}: {fault}; preparing it")
            _replace(folder, stamp, make)
            report(f"{folder}: ready")
    return folder


def find_fault(folder: Path, stamp: str) -> str | None:
    """Return what is wrong with the folder, or None."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        recorded = {str(name): str(digest) for name, digest in manifest["files"].items()}
        made_as = manifest["stamp"]
    except FileNotFoundError:
        return "not there yet"
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return "its manifest can not be read"
    if made_as != stamp:
        return "made for another version"
    for name, digest in recorded.items():
        try:
            is_same = _digest(folder / name) == digest
        except OSError:
            is_same = False
        if not is_same:
            return f"{name} is missing or damaged"
    return None


def _replace(folder: Path, stamp: str, make: Callable[[Path], None]) -> None:
    """Make the folder beside its place, then move it there. Call with the lock held."""
    root = folder.parent
    prefix = f"{_PARTIAL}{folder.name}-"
    for left_over in root.glob(f"{prefix}*"):
        shutil.rmtree(left_over)
    partial = Path(tempfile.mkdtemp(prefix=prefix, dir=root))
    try:
        made = partial / "made"
        made.mkdir()
        make(made)
        digests = {file.name: _digest(file) for file in sorted(made.iterdir())}
        (made / MANIFEST).write_text(json.dumps({"stamp": stamp, "files": digests}, indent=1))
        if folder.exists():
            folder.rename(partial / "broken")
        made.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _digest(file: Path) -> str:
    """Return size and BLAKE2 hash of a file."""
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=20))
    return f"{file.stat().st_size}:{digest.hexdigest()}"


@contextmanager
def _exclusive(lock: Path, report: Callable[[str], None]) -> Iterator[None]:
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("another process is preparing it; waiting")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield
