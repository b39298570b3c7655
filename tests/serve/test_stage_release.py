"""Slots come back when a gateway dies, and only after the model has let go of the session."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import ray
from ray import serve
from ray.serve.exceptions import RequestCancelledError

from session.config import SessionLimits
from session.fence import Fence
from stages.scripted.plugin import PLUGIN
from tests.support.gateway_process import GatewayProcess
from tests.support.serve_cluster import ServeCluster
from tests.support.stage_talk import Service, begin, names

# Nobody's lease expires here, so that only a death or a close can free a slot.
LIMITS = SessionLimits(max_sessions=2, lease_ttl_s=3600, reaper_interval_s=0.3)


@pytest.fixture(scope="module")
def service(cluster: ServeCluster) -> Iterator[Service]:
    yield Service(cluster, LIMITS, {"failing_closes": 2})
    cluster.delete()


async def test_the_death_of_a_gateway_frees_its_slots(service: Service) -> None:
    start: Any = ray.remote(GatewayProcess).options(num_cpus=0).remote
    gateway = start(*service.handles.values(), PLUGIN.descriptor, LIMITS)
    await gateway.open.remote(Fence(next(names), 0, 0, 0))
    assert await service.slots_taken() == [1, 1]
    ray.kill(gateway)
    await service.until_free()


async def test_a_stage_that_can_not_release_is_asked_again_until_it_has(service: Service) -> None:
    directory = service.directory()
    talk = await begin(directory)
    await talk.close()
    assert await service.slots_taken() == [0, 0]
    await directory.close()


async def test_a_session_that_was_never_closed_is_released_with_its_directory(
    service: Service,
) -> None:
    directory = service.directory(replace(LIMITS, stage_timeout_s=5))
    await begin(directory)
    assert await service.slots_taken() == [1, 1]
    await directory.close()
    await service.until_free()


async def test_a_lease_outlives_the_request_that_it_was_taken_in(service: Service) -> None:
    """Serve cancels what a request has called when it cancels the request itself."""
    gateway = serve.deployment(ray_actor_options={"num_cpus": 0})(GatewayProcess)
    bound = gateway.bind(*service.handles.values(), PLUGIN.descriptor, LIMITS)
    handle: Any = await asyncio.to_thread(serve.run, bound, name="gateway", route_prefix=None)
    fence = Fence(next(names), 0, 0, 0)
    request = handle.open_and_stay.remote(fence)
    while await handle.opened.remote() == 0:  # noqa: ASYNC110 - no event crosses the process
        await asyncio.sleep(0.05)
    await handle.append.remote(fence, 1)
    request.cancel()
    with pytest.raises(RequestCancelledError):
        await request
    for seq in range(2, 12):
        await handle.append.remote(fence, seq)
        await asyncio.sleep(0.05)
    assert await service.slots_taken() == [1, 1]
    await asyncio.to_thread(serve.delete, "gateway")
    await service.until_free()
