"""A folder for a process's local sockets, which goes with it, or with whoever comes next.

A process that is killed leaves its sockets' files behind. They lie in a folder that names it, so
that the next process that needs one can take away what belongs to nobody. An engine's process and
those that vLLM starts for it keep whatever else is temporary there too: vLLM leaves a file
(`vllm_dist_*`) at each start.
"""

import atexit
import functools
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

PREFIX: Final = "duplex-ipc-"


def make_ipc_folder(base: Path | None = None) -> Path:
    """Return a new folder that only this user can enter; remove those of processes that are gone.

    `base` is where it lies; None is the system's place for temporary files.
    """
    place = base if base is not None else Path(tempfile.gettempdir())
    for left in place.glob(f"{PREFIX}*"):
        if is_orphan(left):
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=place))


@functools.cache
def process_ipc_folder() -> Path:
    """Return the one folder for sockets that live as long as the process; it goes at its end."""
    folder = make_ipc_folder()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def keep_temporary_files_apart() -> None:
    """Have this process and its children keep their temporary files in that folder from now on."""
    # What torch has compiled is worth keeping from one process to the next.
    compiled = Path(tempfile.gettempdir()) / f"torchinductor_{os.getuid()}"
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(compiled))
    os.environ["TMPDIR"] = tempfile.tempdir = str(process_ipc_folder())


def is_orphan(folder: Path) -> bool:
    """Whether a folder of this kind is there, this user's, and its process is not."""
    number = folder.name.removeprefix(PREFIX).partition("-")[0]
    if not number.isdecimal() or folder.is_symlink():
        return False
    try:
        if folder.stat().st_uid != os.getuid():
            return False
        os.kill(int(number), 0)
    except FileNotFoundError:
        return False  # another process that starts now has taken it away
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False
