"""Serve counts conversations: a stage that nears its limit gets another replica, and an empty one
goes again. This is what `autoscaling_config` in k8s/ relies on.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from ray import serve

from serve_app.leasing.stage_client import RayStageDirectory
from session.config import SessionLimits
from tests.support.serve_cluster import APPLICATION, ServeCluster
from tests.support.stage_talk import QUESTION, Service, begin

LIMITS = SessionLimits(max_sessions=2, reaper_interval_s=0.3)
SCALING = {
    "min_replicas": 1,
    "max_replicas": 2,
    # Below max_sessions: one session more than this asks for the second replica.
    "target_ongoing_requests": 1,
    "upscale_delay_s": 0.5,
    "downscale_delay_s": 0.5,
    # Serve decides by the average over this; it may not be less than its unit of ten seconds.
    "look_back_period_s": 11,
}


@pytest.fixture(scope="module")
def service(cluster: ServeCluster) -> Iterator[Service]:
    yield Service(cluster, LIMITS, {"sentences": 4}, scaling=SCALING)
    cluster.delete()


@pytest.fixture
async def directory(service: Service) -> AsyncIterator[RayStageDirectory]:
    directory = service.directory()
    yield directory
    await directory.close()


def running() -> list[int]:
    """Return how many replicas of each stage run."""
    deployments = serve.status().applications[APPLICATION].deployments
    return [
        sum(n for state, n in deployments[name].replica_states.items() if state == "RUNNING")
        for name in ("Stage0", "Stage1")
    ]


async def until_there_are(replicas: int) -> None:
    """Wait for that many replicas of both stages; the test's time limit is the bound."""
    while running() != [replicas, replicas]:  # noqa: ASYNC110 - no event crosses the process
        await asyncio.sleep(0.1)


async def test_stages_grow_with_conversations_and_shrink_when_they_have_ended(
    service: Service, directory: RayStageDirectory
) -> None:
    await until_there_are(1)
    talks = [await begin(directory), await begin(directory)]
    await until_there_are(2)
    # Twice as many find room, and the first two talk on where they began.
    talks += [await service.until_it_opens(directory), await service.until_it_opens(directory)]
    for talk in talks:
        result, _ = await talk.append(QUESTION)
        assert talk.fence.session_id in result.text
    for talk in talks:
        await talk.close()
    await until_there_are(1)
    talk = await begin(directory)
    await talk.close()
