"""Two gateways race for the last slot: the stage's lease decides, and one of them has it."""

import asyncio
from collections.abc import Iterator

import pytest

from session.config import SessionLimits
from session.errors import AdmissionRefused
from tests.support.serve_cluster import ServeCluster
from tests.support.stage_talk import Service, begin

pytestmark = pytest.mark.serve

ROUNDS = 8


@pytest.fixture(scope="module")
def service(cluster: ServeCluster) -> Iterator[Service]:
    yield Service(cluster, SessionLimits(max_sessions=1, reaper_interval_s=0.3), {})
    cluster.delete()


async def test_one_of_two_gateways_gets_the_last_slot(service: Service) -> None:
    gateways = [service.directory(), service.directory()]
    for _ in range(ROUNDS):
        tries = (begin(each) for each in gateways)
        talks = await asyncio.gather(*tries, return_exceptions=True)
        refused = [each for each in talks if isinstance(each, AdmissionRefused)]
        admitted = [each for each in talks if not isinstance(each, BaseException)]
        assert (len(refused), len(admitted)) == (1, 1), talks
        assert await service.slots_taken() == [1, 1]
        await admitted[0].close()
        await service.until_free()
    for gateway in gateways:
        await gateway.close()
