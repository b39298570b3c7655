"""A running service knows whether others can reach it, and asks for keys if they can."""

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.serve_cluster import ENVIRONMENT, ServeCluster

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def service(cluster: ServeCluster) -> Iterator[str]:
    cluster.deploy("scripted.yaml")
    yield f"http://{cluster.address}"
    cluster.delete()


def test_on_loopback_nobody_needs_a_key(service: str) -> None:
    with urllib.request.urlopen(f"{service}/v1/models") as answer:
        assert answer.status == 200


def test_where_others_can_reach_it_a_replica_finds_out() -> None:
    program = [sys.executable, "-m", "tests.support.exposed_service", "0.0.0.0"]
    done = subprocess.run(
        program,
        cwd=ROOT,
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "loopback: False" in done.stdout.splitlines(), done.stderr
