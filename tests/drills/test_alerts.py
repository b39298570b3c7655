"""Each alert fires on the running service when its fault is there, and none does without one.

The faults are real. Times are a twentieth of those in the shipped rules; nothing else differs.
"""

import asyncio
import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest

from tests.drills.callers import (
    CONTINUOUS,
    IN_TURNS,
    call,
    crowd,
    dial,
    interrupt_late,
    listen_in,
    script,
    take_turns,
)
from tests.drills.site import ENGINES, GATEWAY, KEY, SESSIONS, Site, say, stopped
from tests.fakes.wire import client
from tools.dashboards.alerts import ALERTS

pytestmark = pytest.mark.timeout(300)

HEALTHY_FOR_S = 75.0
"""Longer than any alert here waits, with a window filled before."""


@asynccontextmanager
async def again_and_again(action: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Run a coroutine function over and over until the end."""

    async def go_on() -> None:
        while True:
            await action()

    task = asyncio.ensure_future(go_on())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_none_fires_while_all_is_well(site: Site) -> None:
    async with (
        crowd(site.url, KEY, of=5, talk=take_turns, **IN_TURNS),
        crowd(site.url, KEY, of=5, talk=listen_in, **CONTINUOUS),
    ):
        seen: set[str] = set()
        with suppress(TimeoutError):
            async with asyncio.timeout(HEALTHY_FOR_S):
                while True:
                    seen |= await site.firing()
                    await asyncio.sleep(0.5)
        answers = site.prometheus.query('sum(ray_duplex_responses_total{status="completed"})')
    say(f"healthy: {answers[0].value:.0f} answers")
    assert answers[0].value > 20
    assert seen == set()


async def test_wrong_keys(site: Site) -> None:
    def knock() -> int:
        asked = urllib.request.Request(
            f"http://{site.cluster.address}/v1/models", headers={"Authorization": "Bearer wrong"}
        )
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(asked, timeout=10)
        refused.value.close()
        return refused.value.code

    async def flood() -> None:
        assert await asyncio.to_thread(knock) == 401
        await asyncio.sleep(0.1)

    async with again_and_again(flood):
        await site.until_fires("wrong keys, several a second", "DuplexKeysRefused")
    await site.until_quiet("DuplexKeysRefused")


async def test_all_slots_are_held_and_more_come(site: Site) -> None:
    async with AsyncExitStack() as stack:
        async with asyncio.TaskGroup() as group:
            for _ in range(SESSIONS):
                held = call(site.url, KEY, **CONTINUOUS)
                group.create_task(stack.enter_async_context(held))
        await site.until_fires(
            "all slots are held",
            *(f"DuplexSlotsNearlyTaken{{stage={stage}}}" for stage in ENGINES),
        )

        async def come_too_late() -> None:
            async with call(site.url, KEY, **CONTINUOUS) as line:
                await line.until("closed")
                assert line.heard["error"] == 1
            await asyncio.sleep(0.2)

        async with again_and_again(come_too_late):
            await site.until_fires("more come than fit", "DuplexSessionsRefused")
    await site.until_quiet("DuplexSlotsNearlyTaken", "DuplexSessionsRefused")


async def test_speech_is_made_slowly(site: Site) -> None:
    slow = {**IN_TURNS, **script(chunk_delay_ms=1_800)}
    async with crowd(site.url, KEY, of=10, talk=take_turns, **slow):
        await site.until_fires(
            "each piece of speech takes 1.8 s",
            "DuplexFirstAudioMedianSlow",
            "DuplexFirstAudioSlow",
            "DuplexDeadlineMisses{stage=stage1}",
            "DuplexUnderruns",
        )


async def test_units_are_slow(site: Site) -> None:
    slow = {**CONTINUOUS, **script(unit_delay_ms=2_500)}
    async with crowd(site.url, KEY, of=10, talk=listen_in, **slow):
        await site.until_fires(
            "a unit of 1 s takes 2.5 s", "DuplexDeadlineMisses{stage=stage0}", "DuplexUnitLag"
        )


async def test_clients_interrupt_with_long_pieces(site: Site) -> None:
    talkative = {**IN_TURNS, **script(sentence_ms=30_000, chunk_delay_ms=150)}
    async with crowd(site.url, KEY, of=10, talk=interrupt_late, **talkative):
        await site.until_fires("pieces of 0.9 s interrupt", "DuplexBargeInSlow")


async def test_answers_fail(site: Site) -> None:
    failing = {**IN_TURNS, **script(fail_at_sentences=list(range(1, 100)))}
    async with crowd(site.url, KEY, of=5, talk=take_turns, **failing):
        await site.until_fires("Stage1 fails on each sentence", "DuplexResponsesFail")


async def test_clients_come_back_with_what_is_no_token(site: Site) -> None:
    async def come_back(session_id: str) -> None:
        asked = client(
            "session.resume",
            session_id=session_id,
            resume_token="a guess",
            last_received_server_event_seq=0,
        )
        async with dial(f"{site.url}&resume=1", KEY) as socket:
            await socket.send(asked)
            assert json.loads(await socket.recv())["type"] == "error"
        await asyncio.sleep(0.5)

    async with call(site.url, KEY, **CONTINUOUS) as line:
        session_id = line.created["session"]["id"]
        async with again_and_again(lambda: come_back(session_id)):
            await site.until_fires("resumes with a wrong token", "DuplexResumesFail")


async def test_clients_come_back_too_late(site: Site) -> None:
    await site.until_quiet("DuplexResumesFail")

    async def come_back() -> None:
        async with dial(f"{site.url}&resume=1", KEY) as socket:
            await socket.send(
                client(
                    "session.resume",
                    session_id="sess_of_a_gateway_that_is_gone",
                    resume_token="was good there",
                    last_received_server_event_seq=0,
                )
            )
            assert json.loads(await socket.recv())["type"] == "error"
        await asyncio.sleep(0.5)

    async with again_and_again(come_back):
        await site.until_fires("resumes of sessions that are gone", "DuplexResumesFail")


async def test_one_session_waits_for_all(site: Site) -> None:
    await site.until_quiet("DuplexUnfair")
    slow = {**CONTINUOUS, **script(unit_delay_ms=800)}
    async with (
        crowd(site.url, KEY, of=8, talk=listen_in, **CONTINUOUS),
        crowd(site.url, KEY, of=1, talk=listen_in, **slow),
    ):
        await site.until_fires("one of nine sessions has units of 0.8 s", "DuplexUnfair")


async def test_the_gateway_has_no_time(site: Site) -> None:
    pid = await site.worker(GATEWAY)

    async def take_its_time() -> None:
        with stopped(pid):
            await asyncio.sleep(0.4)
        await asyncio.sleep(0.4)

    async with again_and_again(take_its_time):
        await site.until_fires(
            "the gateway's process has every other 0.4 s", "DuplexGatewayOverloaded"
        )
    await site.until_quiet("DuplexGatewayOverloaded")


async def test_the_gateway_hangs(site: Site) -> None:
    await site.until_quiet("DuplexLeasesExpired", "DuplexSessionsBroken")
    async with AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(call(site.url, KEY, **CONTINUOUS))
        with stopped(await site.worker(GATEWAY)):
            await site.until_fires("the gateway's process is stopped", "DuplexLeasesExpired")
        await site.until_fires("it goes on", "DuplexSessionsBroken")
    await site.until_quiet("DuplexLeasesExpired", "DuplexSessionsBroken")


async def test_an_engine_hangs(site: Site) -> None:
    await site.until_quiet("DuplexEngineMissing")

    async def try_to_open() -> None:
        async with call(site.url, KEY, **CONTINUOUS) as line:
            await line.until("closed")
            assert line.heard["error"] == 1
        await asyncio.sleep(0.2)

    pid = await site.worker(ENGINES["stage1"])
    with stopped(pid):
        async with AsyncExitStack() as stack:
            for _ in range(4):
                await stack.enter_async_context(again_and_again(try_to_open))
            await site.until_fires(
                "the engine's process is stopped",
                "DuplexSessionsNotOpened",
                "DuplexEngineMissing{stage=stage1}",
            )
    await site.until_quiet("DuplexEngineMissing", "DuplexSessionsNotOpened")
    await site.until_healthy()


async def test_an_engine_does_not_come_up(site: Site) -> None:
    await site.until_quiet("DuplexEngineMissing")

    async def kill_it() -> None:
        await site.kill(ENGINES["stage0"])

    async with again_and_again(kill_it):
        await site.until_fires(
            "the engine is killed whenever it comes", "DuplexEngineMissing{stage=stage0}"
        )
    await site.until_quiet("DuplexEngineMissing")
    await site.until_healthy()


async def test_an_engine_dies_again_and_again(site: Site) -> None:
    await site.until_quiet("DuplexEngineRestarting", "DuplexSessionsBroken")
    newest = 'max(ray_duplex_engine_start_time_seconds{stage="stage1"})'
    for _ in range(3):
        before = site.prometheus.query(newest)[0].value
        async with call(site.url, KEY, **CONTINUOUS):
            await site.kill(ENGINES["stage1"])
            await site.until_value(newest, lambda now, old=before: now > old)  # type: ignore[misc]
    await site.until_fires(
        "three deaths of an engine with a session",
        "DuplexEngineRestarting{stage=stage1}",
        "DuplexSessionsBroken",
    )


async def test_the_gateway_dies_again_and_again(site: Site) -> None:
    await site.until_quiet("DuplexGatewayRestarting")
    newest = "max(ray_duplex_gateway_start_time_seconds)"
    for _ in range(3):
        before = site.prometheus.query(newest)[0].value
        await site.kill(GATEWAY)
        await site.until_value(newest, lambda now, old=before: now > old)  # type: ignore[misc]
    await site.until_fires("three deaths of the gateway", "DuplexGatewayRestarting")
    await site.until_healthy()


async def test_the_gateway_does_not_come_up(site: Site) -> None:
    good = site.keys_file.read_text()
    site.keys_file.write_text("a-key max_sessions=many\n")
    os.kill(await site.worker(GATEWAY), signal.SIGKILL)
    await site.until_fires("a wrong line in the keys' file", "DuplexGatewayMissing")
    site.keys_file.write_text(good)
    say("the keys' file is mended")
    await site.until_quiet("DuplexGatewayMissing")
    await site.until_healthy()


async def test_all_of_them_have_fired_and_stop_by_themselves(site: Site) -> None:
    assert {one.alert for one in site.fired} == {alert.name for alert in ALERTS}
    await site.until_quiet()
