"""What vLLM calls in each of its processes before it reads a config: our models' registration.

Named in pyproject.toml as the entry point `vllm.general_plugins`. It also runs in services that
never load a model of ours, so it imports nothing until vLLM is there to ask.

A process that another one started as a child through `multiprocessing`, as vLLM starts its engine
and its workers, also ends when that one dies, even where the parent had no chance to say so.
"""

import logging
import multiprocessing
import os
import threading
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.util import register_after_fork
from typing import Final

_log = logging.getLogger(__name__)

WATCHER: Final = "duplex-parent-watcher"
"""The name of the thread that watches."""
_ORPHANED: Final = 86
"""The exit status of a process whose parent died."""


_LOOK_AGAIN_S: Final = 5.0


class _Watcher:
    """Waits for the parent's end in a thread of each child."""

    def __init__(self) -> None:
        # vLLM calls plugins once; a child that is forked after that has the flag, but no thread.
        register_after_fork(self, _Watcher.start)

    def start(self) -> None:
        """Start the thread, if this process is a child and has none."""
        parent = multiprocessing.parent_process()
        if parent is None or any(one.name == WATCHER for one in threading.enumerate()):
            return
        threading.Thread(target=_watch, args=(parent,), name=WATCHER, daemon=True).start()


_watchers: list[_Watcher] = []


def register() -> None:
    """Make our model classes known to vLLM; calling it again changes nothing."""
    from transformers import AutoConfig  # noqa: PLC0415 - see above
    from vllm import ModelRegistry  # noqa: PLC0415

    from stages.minicpmo.talker_args import TALKER_ARCHITECTURE  # noqa: PLC0415
    from stages.minicpmo.vllm_args import ARCHITECTURE, MODEL_TYPE  # noqa: PLC0415
    from stages.minicpmo.vllm_config import DuplexMiniCPMOConfig  # noqa: PLC0415

    AutoConfig.register(MODEL_TYPE, DuplexMiniCPMOConfig, exist_ok=True)
    modules = {ARCHITECTURE: "vllm_model", TALKER_ARCHITECTURE: "talker_model"}
    for name, module in modules.items():
        if name not in ModelRegistry.get_supported_archs():
            ModelRegistry.register_model(name, f"stages.minicpmo.{module}:{name}")
    end_with_parent()


def end_with_parent() -> None:
    """Make this process's children, and itself if it is one, end when their parent dies."""
    if not _watchers:
        _watchers.append(_Watcher())
    _watchers[0].start()


def _watch(parent: BaseProcess) -> None:
    # A forked brother keeps the parent's end of the sentinel open, so the system is asked as well;
    # where a fork server is the parent of all, it knows nothing and the sentinel is enough.
    is_asked = os.getppid() == parent.pid
    while not wait([parent.sentinel], timeout=_LOOK_AGAIN_S):
        if is_asked and os.getppid() != parent.pid:
            break
    _log.error("the process %s that started this one is gone: ending", parent.pid)
    # No clean-up: what it would talk to is gone, and a hook that waits would keep the memory.
    os._exit(_ORPHANED)
