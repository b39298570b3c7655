"""MiniCPM-o's whole path on real Ray and real vLLM, with toy weights, seen through its sockets."""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.fakes.wire import append_bytes, client, update
from tests.support.serve_cluster import Process, ServeCluster, descendants, is_alive
from tests.support.stage0_talk import second

pytestmark = [pytest.mark.timeout(300), pytest.mark.vllm]

PATIENCE_S = 120.0
"""Only a test that has gone wrong ever waits so long."""
SECOND_BYTES = 48_000
"""Of what comes out: 24 kHz, 16 bits."""
SETTINGS = {
    "language_model": {
        "max_sessions": 2,
        "session_tokens": 1024,
        "kv_cache_memory_bytes": 33_554_432,
        "enforce_eager": True,
    },
    "decoding": {"greedy": True},
}


@pytest.fixture(scope="module")
def service(cluster: ServeCluster) -> Iterator[ServeCluster]:
    # Clients here hang up for good.
    limits = {"max_sessions": 2, "disconnect_grace_s": 0}
    cluster.deploy("minicpmo_tiny.yaml", {"model_settings": SETTINGS, "limits": limits})
    yield cluster
    cluster.delete()


class Caller:
    """A client that sends a second of sound at a time and keeps all that it hears."""

    def __init__(self, line: ClientConnection, audio: int) -> None:
        self.line = line
        self.audio = audio
        self.sent = 0
        self.heard: list[dict[str, Any]] = []

    async def open(self) -> "Caller":
        """Open a session in which the model speaks on its own."""
        await self.line.send(update(extra_body={"auto_response": True}))
        created = await self.hear()
        assert created["type"] == "session.created", created
        return self

    async def hear(self) -> dict[str, Any]:
        """Read one event."""
        async with asyncio.timeout(PATIENCE_S):
            event: dict[str, Any] = json.loads(await self.line.recv())
        self.heard.append(event)
        return event

    async def say(self) -> None:
        """Send the next second."""
        await self.line.send(append_bytes(second(1000 * self.audio + self.sent)))
        self.sent += 1

    async def say_until(self, kind: str) -> dict[str, Any]:
        """Send seconds, and after each hear what the model makes of it, until this comes."""
        while True:
            await self.say()
            while True:
                event = await self.hear()
                if event["type"] == kind:
                    return event
                # A unit that is listened to, or one that is spoken, is one answer to one second.
                if event["type"] in ("response.listen", "response.audio_transcript.delta"):
                    break

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return what came of one kind."""
        return [event for event in self.heard if event["type"] == kind]


def dial(service: ServeCluster) -> connect:
    url = f"ws://{service.address}/v1/realtime?duplex=1"
    return connect(url, max_size=None, compression=None)


def check_answer(caller: Caller) -> None:
    """Check what a caller heard of one answer after the other."""
    deltas = caller.of("response.audio.delta")
    assert deltas
    for delta in deltas:
        assert len(delta["delta"]) == 4 * SECOND_BYTES / 3
        metrics = delta["metadata"]["vllm_omni"]["stage_metrics"]
        assert metrics["vllm_ttft_ms"] > 0
        assert metrics["num_generation_tokens"] > len(metrics["vllm_itls_ms"])
    for done in caller.of("response.done"):
        response = done["response"]["id"]
        mine = [d for d in deltas if d["response_id"] == response]
        ends = [d["metadata"]["audio_duration_ms"] for d in mine]
        assert ends == [1000 * (number + 1) for number in range(len(mine))]


async def test_two_sessions_speak_and_neither_says_what_the_other_does(
    service: ServeCluster,
) -> None:
    async with dial(service) as one, dial(service) as two:
        callers = [await Caller(one, 1).open(), await Caller(two, 2).open()]
        await asyncio.gather(*(caller.say_until("response.done") for caller in callers))
        for caller in callers:
            check_answer(caller)
        said = [
            "".join(event["delta"] for event in caller.of("response.audio_transcript.delta"))
            for caller in callers
        ]
        assert said[0] != said[1]


async def test_the_same_sound_gets_the_same_answer_and_a_cancel_ends_it(
    service: ServeCluster,
) -> None:
    spoken: list[list[str]] = []
    for _ in range(2):
        async with dial(service) as line:
            caller = await Caller(line, 3).open()
            await caller.say_until("response.audio.delta")
            await caller.line.send(client("response.cancel"))
            while (await caller.hear())["type"] != "response.done":
                pass
            assert caller.heard[-1]["response"]["status"] == "cancelled"
            spoken.append([e["delta"] for e in caller.of("response.audio_transcript.delta")])
            # The next turn is answered as if nothing had been.
            first = caller.of("response.created")[-1]["response"]["id"]
            await caller.say_until("response.audio.delta")
            again = caller.of("response.created")[-1]["response"]["id"]
            assert again != first
            check_answer(caller)
    assert spoken[0][:1] == spoken[1][:1]


async def open_again(service: ServeCluster) -> None:
    """Try until a session opens and answers, as a client would."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(ConnectionClosed, InvalidStatus, OSError, AssertionError):
                async with dial(service) as line:
                    caller = await Caller(line, 4).open()
                    await caller.say_until("response.audio.delta")
                    return
            await asyncio.sleep(0.5)


async def engine_processes(service: ServeCluster) -> list[Process]:
    """Return vLLM's processes, once the engine is there: one that was lost is being replaced."""
    await open_again(service)
    every = descendants(service.worker("Stage0Actor"))
    # They may or may not have been able to give themselves a title.
    found = [one for one in every if "resource_tracker" not in one.command]
    assert found, every
    return found


@pytest.mark.parametrize("victim", ["the engine", "its actor"])
async def test_a_dead_engine_ends_its_sessions_with_words_and_leaves_no_process(
    service: ServeCluster, victim: str
) -> None:
    processes = await engine_processes(service)
    async with dial(service) as line:
        caller = await Caller(line, 5).open()
        await caller.say_until("response.audio.delta")
        target = processes[0].pid if victim == "the engine" else service.worker("Stage0Actor")
        os.kill(target, signal.SIGKILL)
        with suppress(ConnectionClosed):
            while True:
                await caller.hear()
        assert caller.heard[-1]["type"] == "session.expired"
        assert caller.heard[-1]["reason"] == "stage0_lost"
        assert line.close_code == 1011
    assert len(await engine_processes(service)) == len(processes)
    assert not any(is_alive(process) for process in processes)
