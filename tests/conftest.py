"""Groups and time limits by kind of test, random tests without a stopwatch, one Ray node for all.

Files that need a package which this machine can not have are left out, and the run says so.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.support import judged_wire
from tests.support.engines_apart import EnginesApart
from tests.support.groups import GROUPS, group_of, looks_into, lost_test
from tests.support.left_out import ROOT, missing, needs_more_than_is_here
from tests.support.serve_cluster import ServeCluster, serve_cluster

TIMEOUTS_S = {
    "models": 120,
    "vllm": 300,
    "serve": 300,
    "browser": 300,
    "clients": 300,
    "soak": 1800,
}

# A machine under load must not fail a test: no deadline for an example. The rest of the profile
# is hypothesis' own choice, which under CI draws the same examples each time.
hypothesis.settings.register_profile("steady", hypothesis.settings(deadline=None))
hypothesis.settings.load_profile("steady")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run be of one group of tests."""
    parser.addoption("--group", choices=GROUPS, help="run the tests of one group of `make test`")


@pytest.hookimpl(trylast=True)  # after the folders' own hooks, which mark their tests
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each marked test its kind's limit, unless it states one itself.

    Tests that count from zero on the Ray node of all come first.
    """
    _choose_group(config, items)
    for item in items:
        limits = [limit for marker, limit in TIMEOUTS_S.items() if item.get_closest_marker(marker)]
        if limits and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(max(limits)))
    # Stable: everything else stays in its order.
    items.sort(key=lambda item: item.get_closest_marker("fresh_cluster") is None)


def _choose_group(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests of the group that was asked for; each must be where its group looks."""
    groups = {item: group_of(mark.name for mark in item.iter_markers()) for item in items}
    lost = {
        (item.path, group) for item, group in groups.items() if not looks_into(group, item.path)
    }
    if lost:
        raise pytest.UsageError(*(lost_test(path, group) for path, group in sorted(lost)))
    asked = config.getoption("group")
    if asked is not None:
        config.hook.pytest_deselected(items=[item for item in items if groups[item] != asked])
        items[:] = [item for item in items if groups[item] == asked]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out a test file that could not be imported here, and where the group has no tests.

    None lets others decide.
    """
    asked = config.getoption("group")
    if asked is not None and not looks_into(asked, collection_path):
        return True
    return True if needs_more_than_is_here(collection_path) else None


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say what was left out, whichever process would have found it."""
    asked = config.getoption("group")
    left_out = [
        path
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if needs_more_than_is_here(path) and (asked is None or looks_into(asked, path))
    ]
    if left_out:
        terminalreporter.section("LEFT OUT")
        terminalreporter.line(f"not installed: {', '.join(sorted(missing()))}; so not run:")
        for path in left_out:
            terminalreporter.line(f"  {path.relative_to(ROOT)}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> EnginesApart | None:
    """Keep the tests of an engine in one process; None is xdist's own choice."""
    return EnginesApart(config, log) if config.getoption("group") == "vllm" else None


@pytest.fixture(scope="session", autouse=True)
def _judges() -> None:
    """Judge every event of the dialects that stock clients read, whichever test causes it."""
    judged_wire.install()


@pytest.fixture(autouse=True)
def _judged() -> Iterator[None]:
    """Fail a test that causes an event which a stock client would refuse."""
    judged_wire.FAULTS.clear()
    yield
    faults = judged_wire.FAULTS[:5]
    assert faults == []


@pytest.fixture(scope="session")
def cluster() -> Iterator[ServeCluster]:
    """Run Ray and Serve for the whole session."""
    with serve_cluster() as running:
        yield running
