"""Time limits by kind of test, random tests without a stopwatch, and one Ray node for all.

Files that need a package which this machine can not have are left out, and the run says so.
"""

from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.support import judged_wire
from tests.support.left_out import ROOT, missing, needs
from tests.support.serve_cluster import ServeCluster, serve_cluster

TIMEOUTS_S = {
    "models": 120,
    "vllm": 180,
    "serve": 180,
    "browser": 180,
    "clients": 180,
    "soak": 1800,
}

# A machine under load must not fail a test: no deadline for an example. The rest of the profile
# is hypothesis' own choice, which under CI draws the same examples each time.
hypothesis.settings.register_profile("steady", hypothesis.settings(deadline=None))
hypothesis.settings.load_profile("steady")


@pytest.hookimpl(trylast=True)  # after the folders' own hooks, which mark their tests
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each marked test its kind's limit, unless it states one itself.

    Tests that count from zero on the Ray node of all come first.
    """
    for item in items:
        limits = [limit for marker, limit in TIMEOUTS_S.items() if item.get_closest_marker(marker)]
        if limits and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(max(limits)))
    # Stable: everything else stays in its order.
    items.sort(key=lambda item: item.get_closest_marker("fresh_cluster") is None)


LEFT_OUT: list[str] = []
"""Test files of this run that were left out."""


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out a test file that could not be imported here; None lets others decide."""
    name = collection_path.name
    if not (
        name.startswith("test_") and name.endswith(".py") and needs(collection_path, missing())
    ):
        return None
    LEFT_OUT.append(str(collection_path.relative_to(ROOT)))
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was left out."""
    if LEFT_OUT:
        terminalreporter.section("LEFT OUT")
        terminalreporter.line(f"not installed: {', '.join(sorted(missing()))}; so not run:")
        for name in LEFT_OUT:
            terminalreporter.line(f"  {name}")


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
