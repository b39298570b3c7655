"""The way to the stages over real Ray: leases, calls, cancellation, and what dies on the way."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest
import ray

from serve_app.leasing.stage_client import RayStageDirectory
from session.config import RuntimeConfig, SessionLimits
from session.errors import (
    AdmissionRefused,
    StageContractBroken,
    StageFailed,
    StageRefused,
    StageUnavailable,
    UnsupportedOption,
)
from stages.scripted.plugin import PLUGIN
from tests.support.serve_cluster import ServeCluster
from tests.support.stage_talk import HANGS, QUESTION, Service, begin, collect

# A lease lasts several times as long as a busy machine lets a renewal wait.
LIMITS = SessionLimits(max_sessions=2, lease_ttl_s=8.0, reaper_interval_s=0.3, stage_timeout_s=60.0)
FAILS = 4
SETTINGS = {
    "hang_at_units": [HANGS],
    "fail_at_units": [FAILS],
    # Far longer than a test may last: whoever waits for its end has not been cancelled.
    "sentence_ms": 3_600_000,
    "chunk_ms": 100,
    "chunk_delay_ms": 10,
}


@pytest.fixture(scope="module")
def service(cluster: ServeCluster) -> Iterator[Service]:
    yield Service(cluster, LIMITS, SETTINGS)
    cluster.delete()


@pytest.fixture
async def directory(service: Service) -> AsyncIterator[RayStageDirectory]:
    directory = service.directory()
    yield directory
    await directory.close()


async def test_a_session_from_its_open_to_its_close(
    service: Service, directory: RayStageDirectory
) -> None:
    well = {"stage0": "ok", "stage1": "ok"}
    while await directory.health() != well:  # noqa: ASYNC110 - other processes
        await asyncio.sleep(0.1)  # a stage that has not answered yet holds nobody up
    talk = await begin(directory)
    assert await service.slots_taken() == [1, 1]
    await talk.stages.configure(talk.fence, RuntimeConfig(voice="low"), 1)
    result, speech = await talk.append(QUESTION, generation=1)
    assert talk.fence.session_id in result.text
    chunks = talk.stages.speak(talk.fence, seq=talk.seq, speech=speech)
    first = await anext(chunks)
    assert len(first.pcm) == 4800
    assert result.text.startswith(first.transcript)
    await chunks.aclose()
    await talk.cancel()
    await talk.append(generation=1)
    await talk.close()
    assert await service.slots_taken() == [0, 0]


async def test_a_closed_session_takes_no_more_calls(directory: RayStageDirectory) -> None:
    talk = await begin(directory)
    await talk.close()
    with pytest.raises(StageUnavailable, match="closed"):
        await talk.append()
    with pytest.raises(StageUnavailable):
        await anext(talk.stages.speak(talk.fence, seq=1, speech=None))
    await talk.close()


async def test_one_session_too_many_is_refused_until_another_one_closes(
    service: Service, directory: RayStageDirectory
) -> None:
    talks = [await begin(directory), await begin(directory)]
    with pytest.raises(AdmissionRefused, match="all 2 session slots"):
        await begin(directory)
    assert await service.slots_taken() == [2, 2]
    await talks.pop().close()
    talks.append(await begin(directory))
    for talk in talks:
        await talk.close()


async def test_a_failed_open_gives_back_what_was_taken(
    service: Service, directory: RayStageDirectory
) -> None:
    with pytest.raises(UnsupportedOption, match="no voice 'soprano'"):
        await begin(directory, RuntimeConfig(voice="soprano"))
    assert await service.slots_taken() == [0, 0]


async def test_stage0_is_given_back_when_stage1_is_full(
    service: Service, directory: RayStageDirectory
) -> None:
    held = [await service.lease("Stage1", directory) for _ in "ab"]
    with pytest.raises(AdmissionRefused):
        await begin(directory)
    assert await service.slots_taken() == [0, 2]
    for half in held:
        half.give_back()
    await service.until_free()


async def test_another_model_is_not_talked_to(service: Service) -> None:
    other = replace(PLUGIN.descriptor, model_id="another-model")
    directory = service.directory_for(other, LIMITS)
    with pytest.raises(StageContractBroken, match="expects another-model"):
        await begin(directory)
    assert await service.slots_taken() == [0, 0]


async def test_a_stages_own_error_comes_with_its_words_and_ends_nothing(
    directory: RayStageDirectory,
) -> None:
    talk = await begin(directory)
    hanging = await talk.reach_the_hang()
    await talk.cancel()
    with pytest.raises(StageRefused):
        await hanging
    with pytest.raises(StageFailed, match=f"the script fails at unit {FAILS}"):
        await talk.append()
    talk.seq = 0
    await talk.append()
    await talk.close()


async def test_a_cancel_ends_the_call_and_the_stream_that_run(
    directory: RayStageDirectory,
) -> None:
    talk = await begin(directory)
    spoken = await talk.append(QUESTION)
    chunks = talk.stages.speak(talk.fence, seq=talk.seq, speech=spoken.speech)
    await anext(chunks)
    rest = asyncio.ensure_future(collect(chunks))
    hanging = await talk.reach_the_hang()
    await talk.cancel()
    with pytest.raises(StageRefused, match="cancelled"):
        await hanging
    await rest  # an hour of speech ends at once, and without an error
    await talk.close()


async def test_a_consumer_that_is_cancelled_stops_the_stage(directory: RayStageDirectory) -> None:
    talk = await begin(directory)
    spoken = await talk.append(QUESTION)
    chunks = talk.stages.speak(talk.fence, seq=1, speech=spoken.speech)
    await anext(chunks)  # the stage speaks
    listener = asyncio.ensure_future(collect(chunks))
    await asyncio.sleep(0)  # so that it listens
    listener.cancel()
    await asyncio.wait({listener})
    # The stage says one thing at a time, and the first was an hour long.
    again = talk.stages.speak(talk.fence, seq=2, speech=spoken.speech)
    assert (await anext(again)).pcm
    await again.aclose()
    await talk.close()


async def test_settings_that_stage1_refuses_leave_the_session_as_it_was(
    directory: RayStageDirectory,
) -> None:
    talk = await begin(directory)
    with pytest.raises(UnsupportedOption, match="no voice"):
        await talk.stages.configure(talk.fence, RuntimeConfig(voice="soprano"), 1)
    await talk.append(generation=0)
    with pytest.raises(StageRefused):
        await talk.append(generation=1)
    await talk.close()


async def test_renewed_leases_last_and_others_do_not(
    service: Service, directory: RayStageDirectory
) -> None:
    # This one thinks that it has an hour, and renews too late.
    careless = service.directory(replace(LIMITS, lease_ttl_s=3600))
    kept, dropped = await begin(directory), await begin(careless)
    _, error = await dropped.stages.wait_lost()
    assert isinstance(error, StageUnavailable)
    assert "not renewed in time" in error.message
    await kept.append()
    await dropped.close()
    await kept.close()
    assert await service.slots_taken() == [0, 0]
    await careless.close()


async def test_the_death_of_stage0s_engine_wakes_everyone_once_and_the_service_recovers(
    service: Service, directory: RayStageDirectory
) -> None:
    half = await service.lease("Stage0", directory)
    waiting = [asyncio.ensure_future(half.call(half.engine.alive)) for _ in range(5)]
    talk = await begin(directory)
    waiting.append(await talk.reach_the_hang())
    ray.kill(half.engine)
    ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(end) for end in ends] == [StageUnavailable] * 6
    stage, error = await talk.stages.wait_lost()
    assert (stage, type(error)) == ("stage0", StageUnavailable)
    assert half.latch.late_answers == 0
    assert half.latch.waiting == 0
    with pytest.raises(StageUnavailable, match="lost the session"):
        await talk.append()
    await talk.close()
    await half.close(talk.fence)
    again = await service.until_it_opens(directory)
    await again.append()
    await again.close()


async def test_the_death_of_stage1s_engine_ends_the_speech(
    service: Service, directory: RayStageDirectory
) -> None:
    half = await service.lease("Stage1", directory)
    talk = await begin(directory)
    spoken = await talk.append(QUESTION)
    chunks = talk.stages.speak(talk.fence, seq=1, speech=spoken.speech)
    await anext(chunks)
    ray.kill(half.engine)
    with pytest.raises(StageUnavailable):
        await collect(chunks)
    assert (await talk.stages.wait_lost())[0] == "stage1"
    await talk.append()  # Stage0 still lives
    await talk.close()
    await half.close(talk.fence)
    await (await service.until_it_opens(directory)).close()


async def test_the_death_of_a_replica_is_noticed_and_takes_its_engine_along(
    service: Service, directory: RayStageDirectory
) -> None:
    half = await service.lease("Stage0", directory)
    talk = await begin(directory)
    [replica] = [
        actor
        for actor in ray.util.list_named_actors(all_namespaces=True)
        if half.replica in actor["name"]
    ]
    ray.kill(ray.get_actor(**replica))
    assert (await talk.stages.wait_lost())[0] == "stage0"
    with pytest.raises(ray.exceptions.RayActorError):
        await half.engine.alive.remote()
    await talk.close()
    await half.close(talk.fence)
    await (await service.until_it_opens(directory)).close()
