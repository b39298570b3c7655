"""Shares the tests on vLLM's engine out among processes: those of one engine stay together.

xdist's own groups would say it with a marker, but xdist 3.8 does not see them under pytest 9.2.
"""

from typing import Final

from xdist.scheduler import LoadScopeScheduling

ENGINE_OF: Final = {
    "test_embedded_vllm.py": "model",
    "test_engine_contract.py": "vllm_rig",
    "test_engine_hazards.py": "vllm_rig",
    "test_engine_memory.py": "vllm_rig",
    "test_minicpmo_golden.py": "whole",
    "test_minicpmo_hazards.py": "whole",
    "test_minicpmo_stage0.py": "whole",
    "test_minicpmo_stage1.py": "voice",
    "test_minicpmo_talker.py": "voice",
}
"""By a test's file: the fixture that runs its engine. Other tests start and kill their own."""


def share_of(nodeid: str) -> str:
    """Return what goes to one process as a whole: an engine's name, or the test itself."""
    file = nodeid.partition("::")[0].rpartition("/")[2]
    return ENGINE_OF.get(file, nodeid)


class EnginesApart(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives each process the tests of one engine after the other."""

    def _split_scope(self, nodeid: str) -> str:
        return share_of(nodeid)
