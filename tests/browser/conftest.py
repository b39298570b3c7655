"""Fixtures for the page's tests: the canned service, and a microphone that hums."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.browser import browsers
from tests.browser.canned_service import CannedService, run_canned_service
from tests.support.serve_cluster import serve_cluster


@pytest.fixture
async def service() -> AsyncIterator[CannedService]:
    async with run_canned_service() as service:
        yield service


@pytest.fixture(scope="session")
def hum(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("microphone") / "hum.wav"
    return browsers.write_recording(path, browsers.hum(5.0))


@pytest.fixture(scope="session")
def live_service_url() -> Iterator[str]:
    """Return the address of the shipped service (http://…): DUPLEX_LIVE_URL, or one made here."""
    running = os.environ.get("DUPLEX_LIVE_URL")
    if running is not None:
        yield running
        return
    with serve_cluster() as cluster:
        cluster.deploy("duplex.yaml")
        yield f"http://{cluster.address}/"
