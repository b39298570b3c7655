"""The service as it starts by default, once for all stock clients."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.serve_cluster import ServeCluster
from tests.support.tls_front import TlsFront, tls_front


@pytest.fixture(scope="session")
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return host and port of the shipped service: DUPLEX_LIVE_ADDRESS, or one made here."""
    running = os.environ.get("DUPLEX_LIVE_ADDRESS")
    if running is not None:
        yield running
        return
    cluster: ServeCluster = request.getfixturevalue("cluster")
    cluster.deploy("duplex.yaml")
    yield cluster.address
    cluster.delete()


@pytest.fixture(scope="session")
def secure(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsFront]:
    """Return the service behind TLS."""
    folder: Path = tmp_path_factory.mktemp("tls")
    with tls_front(int(address.rpartition(":")[2]), folder) as front:
        yield front
