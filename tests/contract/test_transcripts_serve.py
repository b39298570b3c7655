"""The golden transcripts against the whole service on real Ray, through real sockets."""

from collections.abc import Iterator

import pytest

from tests.contract.marks import on_sockets
from tests.contract.player import Player
from tests.contract.scripts import SCRIPT
from tests.contract.stages_on_sockets import SocketStage
from tests.contract.transcript import Json, Transcript
from tests.support.serve_cluster import ServeCluster

pytestmark = pytest.mark.serve


class Deployed:
    """One application at a time: what has the same limits is played on the same one."""

    def __init__(self, cluster: ServeCluster) -> None:
        self._cluster = cluster
        self._limits: Json | None = None

    def address(self, limits: Json) -> str:
        """Return where a service with these limits is."""
        if limits != self._limits:
            args = {"model_settings": SCRIPT, "limits": limits}
            self._cluster.deploy("scripted.yaml", args)
            self._limits = limits
        return self._cluster.address


@pytest.fixture(scope="module")
def deployed(cluster: ServeCluster) -> Iterator[Deployed]:
    yield Deployed(cluster)
    cluster.delete()


@pytest.mark.parametrize("transcript", on_sockets())
async def test_transcript(deployed: Deployed, transcript: Transcript) -> None:
    async with SocketStage(deployed.address(transcript.limits)) as stage:
        await Player(stage, transcript).play()
