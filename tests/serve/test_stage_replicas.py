"""Two replicas of each stage: sessions spread over them, and each stays where it began."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from serve_app.leasing.stage_client import RayStageDirectory
from session.config import SessionLimits
from session.errors import AdmissionRefused
from tests.support.serve_cluster import ServeCluster
from tests.support.stage_talk import QUESTION, Service, begin, collect

# A slot on each replica.
LIMITS = SessionLimits(max_sessions=1, reaper_interval_s=0.3)


@pytest.fixture(scope="module")
def service(cluster: ServeCluster) -> Iterator[Service]:
    yield Service(cluster, LIMITS, {"sentences": 4}, replicas=2)
    cluster.delete()


@pytest.fixture
async def directory(service: Service) -> AsyncIterator[RayStageDirectory]:
    directory = service.directory()
    yield directory
    await directory.close()


async def test_a_full_replica_is_passed_over(directory: RayStageDirectory) -> None:
    talks = [await begin(directory), await begin(directory)]
    with pytest.raises(AdmissionRefused):
        await begin(directory)
    await talks.pop().close()
    talks.append(await begin(directory))
    for talk in talks:
        await talk.close()


async def test_a_session_stays_at_its_replicas(directory: RayStageDirectory) -> None:
    talks = [await begin(directory), await begin(directory)]
    answers: list[list[str]] = [[], []]
    for _ in range(4):
        results = await asyncio.gather(*(talk.append(QUESTION) for talk in talks))
        for talk, (result, speech), answer in zip(talks, results, answers, strict=True):
            chunks = await collect(talk.stages.speak(talk.fence, seq=talk.seq, speech=speech))
            assert "".join(chunk.transcript for chunk in chunks) == result.text
            answer.append(result.text.strip())
    for talk, answer in zip(talks, answers, strict=True):
        name = talk.fence.session_id
        assert answer == [f"Answer 1 to {name}, part {part} of 4." for part in range(1, 5)]
        await talk.close()
