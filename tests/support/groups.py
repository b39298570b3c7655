"""Which group of `make test` a test is in, and in which folders a group looks for its tests.

To import all tests takes longer than some groups run, so a group looks only where it has any. A
test that its group would not find is an error of every run that comes across it.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.support.left_out import needs

TESTS: Final = Path(__file__).parents[1]

MARKERS: Final = ("soak", "clients", "browser", "serve", "vllm", "models")
"""Markers that name a test's group; of several the first one does."""
PURE: Final = "pure"
"""The group of tests that have none of them."""
GROUPS: Final = (*MARKERS, PURE)

ONLY_IN: Final = {
    "soak": {"drills"},
    "clients": {"realclients"},
    "browser": {"browser"},
    "serve": {"serve", "contract"},
    "vllm": {"vllm"},
    "models": {"serve_app", "stages", "tools"},
}
"""The folders of a group that does not look into all of them."""
NOT_IN: Final = {PURE: {"browser", "drills", "serve", "vllm"}}
"""Folders that a group does not look into."""
HEAVY: Final = frozenset({"torch", "vllm"})
"""Packages that no test of the group `pure` may need."""


def group_of(markers: Iterable[str]) -> str:
    """Return the group of a test that has these markers."""
    own = set(markers)
    return next((name for name in MARKERS if name in own), PURE)


def looks_into(group: str, path: Path) -> bool:
    """Whether a group looks for tests at this path."""
    if TESTS not in path.parents:
        return True
    folder = path.relative_to(TESTS).parts[0]
    if folder not in ONLY_IN.get(group, {folder}) or folder in NOT_IN.get(group, set()):
        return False
    is_test = path.name.startswith("test_") and path.suffix == ".py"
    return not (group == PURE and is_test and needs(path, HEAVY))


def lost_test(path: Path, group: str) -> str:
    """Say what is wrong with a test that its group would not find."""
    if group == PURE:
        advice = "mark it, or move what needs no torch; where the group looks is"
    else:
        advice = "move it, or name its folder"
    return f"{path}: `make test-{group}` would not find it here; {advice} in {__name__}"
