"""Tests on a real Ray node: one node for all of them, every test marked `serve`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.serve_cluster import ServeCluster, serve_cluster

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what stands in this folder."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.serve)


@pytest.fixture(scope="session")
def cluster() -> Iterator[ServeCluster]:
    """Run Ray and Serve for the whole session."""
    with serve_cluster() as running:
        yield running
