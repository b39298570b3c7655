"""Fixtures for the page's tests: the canned service, and a microphone that hums."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.browser import browsers
from tests.browser.canned_service import CannedService, run_canned_service
from tests.support.serve_cluster import serve_cluster

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let all tests here run on one loop, for they share browsers."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session", autouse=True)
async def _browsers() -> AsyncIterator[None]:
    """Close the browsers at the end."""
    yield
    await browsers.BROWSERS.close()


@pytest_asyncio.fixture(loop_scope="session")
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
