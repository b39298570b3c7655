"""Fixtures for the page's tests: the canned service, and a microphone that hums."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.browser import browsers
from tests.browser.canned_service import CannedService, run_canned_service


@pytest.fixture
async def service() -> AsyncIterator[CannedService]:
    async with run_canned_service() as service:
        yield service


@pytest.fixture(scope="session")
def hum(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("microphone") / "hum.wav"
    return browsers.write_recording(path, browsers.hum(5.0))


@pytest.fixture
def live_service_url() -> str:
    """Return the address of a running service (http://…), from DUPLEX_LIVE_URL."""
    url = os.environ.get("DUPLEX_LIVE_URL")
    if url is None:
        pytest.skip("no service to talk to: start one and set DUPLEX_LIVE_URL=http://host:port/")
    return url
