"""Fault drills: every test here is marked `soak`, and `make drills` alone runs them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.drills.site import Fired, Site, drilled_site

HERE = Path(__file__).parent
SEEN: list[Fired] = []
"""Every alert that has fired, for the table at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what stands in this folder."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.soak)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show which fault made which alert fire, and when."""
    if SEEN:
        terminalreporter.section("ALERTS THAT FIRED")
        for one in SEEN:
            name = f"{one.alert} {one.labels}".rstrip()
            terminalreporter.line(f"{name:<40} {one.after_s:4.0f} s  {one.fault}")


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Run the service and its Prometheus for all drills."""
    with drilled_site(tmp_path_factory.mktemp("site")) as running:
        running.fired = SEEN
        yield running
