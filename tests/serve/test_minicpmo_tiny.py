"""MiniCPM-o's whole path on real Ray and real vLLM, with toy weights, seen through its sockets."""

import asyncio
import base64
import json
import os
import signal
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from prometheus_client.parser import text_string_to_metric_families
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from session.unit import OUTPUT_RATE_HZ
from stages.minicpmo.schedule import CODE_SAMPLES, HELD_BACK_SAMPLES
from stages.wav import build_wav
from tests.fakes.wire import append_bytes, client, update
from tests.support.drawn import MINICPMO_ALONE, STEP_S, drawn_panels, is_of, moves
from tests.support.prometheus import Prometheus, Range, prometheus_beside_ray
from tests.support.serve_cluster import (
    UNHURRIED,
    Process,
    ServeCluster,
    descendants,
    is_alive,
)
from tests.support.stage0_talk import second

pytestmark = pytest.mark.vllm

ANSWERS = ("response.listen", "response.audio_transcript.delta")
"""What a second is answered with: it is listened to, or spoken over."""
Samples = npt.NDArray[np.int16]

PATIENCE_S = 120.0
"""Only a test that has gone wrong ever waits so long."""
SHORT_TURNS = {12: 18, 14: 10}
"""Sounds after which the toy model, which decides greedily, ends its turn soon, and the seconds of
sound until then."""
LISTENS_AGAIN = 3
"""One after which it speaks for two seconds and then listens."""
GOES_ON = 4
"""One after which it hardly stops."""
FAINT = 100.0
"""Of 32768: no sound here is as quiet as this."""
SETTINGS = {
    "language_model": {
        "max_sessions": 2,
        "session_tokens": 1024,
        "kv_cache_memory_bytes": 33_554_432,
        "enforce_eager": True,
    },
    "talker": {"session_tokens": 512, "kv_cache_memory_bytes": 8_388_608, "enforce_eager": True},
    "decoding": {"greedy": True},
}


@pytest.fixture(scope="module")
def deployed(cluster: ServeCluster) -> Iterator[ServeCluster]:
    # Clients here hang up for good.
    limits = {"max_sessions": 2, "disconnect_grace_s": 0, **UNHURRIED}
    cluster.deploy("minicpmo_tiny.yaml", {"model_settings": SETTINGS, "limits": limits})
    yield cluster
    cluster.delete()


@pytest.fixture
def service(deployed: ServeCluster) -> ServeCluster:
    deployed.until_free()
    return deployed


class Caller:
    """A client that sends a second of sound at a time and keeps all that it hears."""

    def __init__(self, line: ClientConnection, audio: int) -> None:
        self.line = line
        self.audio = audio
        self.sent = 0
        self.heard: list[dict[str, Any]] = []

    async def open(self, **session: Any) -> "Caller":
        """Open a session in which the model speaks on its own."""
        await self.line.send(update(extra_body={"auto_response": True}, **session))
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
            event = await self.hear_one_of(kind, *ANSWERS)
            if event["type"] == kind:
                return event

    async def say_turn(self, seconds: int) -> None:
        """Send so many seconds, of which the last one ends the turn, and hear its answer's end.

        A turn's last second may be answered by several chunks, so none is sent after it.
        """
        for _ in range(seconds):
            await self.say()
            await self.hear_one_of(*ANSWERS)
        await self.hear_one_of("response.done")

    async def hear_one_of(self, *kinds: str) -> dict[str, Any]:
        """Read events until one of these comes."""
        while (event := await self.hear())["type"] not in kinds:
            pass
        return event

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return what came of one kind."""
        return [event for event in self.heard if event["type"] == kind]


def dial(service: ServeCluster) -> connect:
    url = f"ws://{service.address}/v1/realtime?duplex=1"
    return connect(url, max_size=None, compression=None)


def samples_of(delta: dict[str, Any]) -> Samples:
    """Return a delta's sound."""
    assert (delta["format"], delta["sample_rate_hz"]) == ("pcm16", OUTPUT_RATE_HZ)
    return np.frombuffer(base64.b64decode(delta["delta"]), "<i2")


def check_answers(caller: Caller) -> None:
    """Check what a caller heard, one answer after the other."""
    assert caller.of("response.audio.delta")
    for done in caller.of("response.done"):
        response = done["response_id"]
        deltas = [d for d in caller.of("response.audio.delta") if d["response_id"] == response]
        check_account(deltas, done)
        check_cadence(deltas)
        texts = [
            event["delta"]
            for event in caller.of("response.audio_transcript.delta")
            if event["response_id"] == response
        ]
        wholes = [
            event["transcript"]
            for event in caller.of("response.audio_transcript.done")
            if event["response_id"] == response
        ]
        # Also of one that was cut short: what its deltas said. The toy may speak without text.
        assert wholes == (["".join(texts)] if any(texts) else [])


def check_account(deltas: list[dict[str, Any]], done: dict[str, Any]) -> None:
    """Check that what was heard is what the service counts, to the sample."""
    samples = 0
    for delta in deltas:
        samples += len(samples_of(delta))
        metadata = delta["metadata"]
        assert metadata["audio_duration_ms"] * OUTPUT_RATE_HZ == samples * 1000
        assert metadata["playback"]["sent_ms"] == metadata["audio_duration_ms"]
        assert metadata["audio_text_marks"][-1]["audio_end_ms"] == metadata["audio_duration_ms"]
        metrics = metadata["vllm_omni"]["stage_metrics"]
        assert metrics["vllm_ttft_ms"] > 0
        assert metrics["num_generation_tokens"] > len(metrics["vllm_itls_ms"])
    playback = done["response"]["metadata"]["playback"]
    assert playback["sent_ms"] == playback["generated_ms"]
    # What was on its way when an answer was cut is counted, and may not have come.
    not_heard = playback["sent_ms"] * OUTPUT_RATE_HZ - samples * 1000
    assert not_heard >= 0
    assert not_heard == 0 or done["response"]["status"] == "cancelled"


def check_cadence(deltas: list[dict[str, Any]]) -> None:
    """Check that a turn is a second of sound after another, and what its end may be."""
    lengths = [len(samples_of(delta)) for delta in deltas]
    if not (deltas and deltas[-1]["metadata"]["end_of_turn"]):
        assert lengths == [OUTPUT_RATE_HZ] * len(lengths)
    else:
        # The last call of a turn has three codes to seven, the one before eight at least.
        codes, rest = divmod(lengths.pop() - HELD_BACK_SAMPLES, CODE_SAMPLES)
        assert (3 <= codes <= 7, rest) == (True, 0)
        codes, rest = divmod(lengths.pop(), CODE_SAMPLES)
        assert (5 <= codes <= 25, rest) == (True, 0)
        assert lengths == [OUTPUT_RATE_HZ] * len(lengths)
    for number, delta in enumerate(deltas):
        sound = samples_of(delta)
        assert float(sound.std()) > FAINT
        # What is held back for the cross-fade lacks in a turn's first second, and only there.
        is_late = not sound[:HELD_BACK_SAMPLES].any()
        assert is_late == (number == 0), number
        assert sound[HELD_BACK_SAMPLES:].any()


async def test_two_sessions_speak_and_neither_says_what_the_other_does(
    service: ServeCluster,
) -> None:
    async with dial(service) as one, dial(service) as two:
        lines = zip((one, two), SHORT_TURNS, strict=True)
        callers = [await Caller(line, audio).open() for line, audio in lines]
        await asyncio.gather(*(caller.say_turn(SHORT_TURNS[caller.audio]) for caller in callers))
        for caller in callers:
            check_answers(caller)
            assert caller.of("response.done")[-1]["response"]["status"] == "completed"
            assert caller.of("response.audio.delta")[-1]["metadata"]["end_of_turn"]
        said = [
            "".join(event["delta"] for event in caller.of("response.audio_transcript.delta"))
            for caller in callers
        ]
        assert said[0] != said[1]
        heard = [
            np.concatenate([samples_of(delta) for delta in caller.of("response.audio.delta")])
            for caller in callers
        ]
        both = min(len(sound) for sound in heard)
        assert (heard[0][:both] != heard[1][:both]).any()


async def test_a_turn_that_ends_in_listening_is_whole_seconds(service: ServeCluster) -> None:
    async with dial(service) as line:
        caller = await Caller(line, LISTENS_AGAIN).open()
        await caller.say_until("response.done")
        assert not caller.of("response.audio.delta")[-1]["metadata"]["end_of_turn"]
        # What is said next is a turn of its own.
        await caller.say_until("response.audio.delta")
        check_answers(caller)
        check_cadence(caller.of("response.audio.delta")[-1:])


async def test_the_same_sound_gets_the_same_answer_and_a_cancel_ends_it(
    service: ServeCluster,
) -> None:
    spoken: list[list[str]] = []
    for _ in range(2):
        async with dial(service) as line:
            caller = await Caller(line, GOES_ON).open()
            await caller.say_until("response.audio.delta")
            await caller.say_until("response.audio.delta")
            await caller.line.send(client("response.cancel"))
            await caller.hear_one_of("response.done")
            assert caller.heard[-1]["response"]["status"] == "cancelled"
            cancelled, at = caller.heard[-1]["response_id"], len(caller.heard)
            spoken.append([e["delta"] for e in caller.of("response.audio_transcript.delta")])
            # The next turn is answered, and begins, as if nothing had been.
            await caller.say_until("response.audio.delta")
            again = caller.of("response.audio.delta")[-1]
            assert again["response_id"] != cancelled
            assert all(event.get("response_id") != cancelled for event in caller.heard[at:])
            check_answers(caller)
            check_cadence([again])
    assert spoken[0][:2] == spoken[1][:2]


def recording(seed: int) -> str:
    """Return two seconds of noise as a client sends a recording of a voice."""
    noise = np.random.default_rng(seed).integers(-9000, 9000, 32_000).astype("<i2")
    wav = build_wav(noise.tobytes(), 16_000)
    return f"data:audio/wav;base64,{base64.b64encode(wav).decode()}"


async def test_a_session_keeps_its_voice_and_changes_the_rest(
    service: ServeCluster,
) -> None:
    sounds = []
    for number, voice in enumerate([{}, {"ref_audio": recording(1)}]):
        async with dial(service) as line:
            caller = await Caller(line, GOES_ON).open(**voice)
            await caller.say_until("response.audio.delta")
            sounds.append(samples_of(caller.of("response.audio.delta")[0]))
            # Settings change with it and without it; the voice does not.
            await line.send(update(instructions=f"Be brief, {number}."))
            answer = await caller.hear_one_of("session.updated", "error")
            assert answer["type"] == "session.updated", answer
            await line.send(update(ref_audio=recording(2)))
            answer = await caller.hear_one_of("session.updated", "error")
            assert answer["error"]["code"] == "ref_audio_update_unsupported"
    assert len(sounds[0]) == len(sounds[1]) == OUTPUT_RATE_HZ
    assert not np.array_equal(sounds[0], sounds[1])


async def open_again(service: ServeCluster) -> None:
    """Try until a session opens and answers, as a client would."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(ConnectionClosed, InvalidStatus, OSError, AssertionError):
                async with dial(service) as line:
                    caller = await Caller(line, GOES_ON).open()
                    await caller.say_until("response.audio.delta")
                    return
            await asyncio.sleep(0.5)


async def engine_processes(service: ServeCluster, actor: str) -> list[Process]:
    """Return vLLM's processes, once the engine is there: one that was lost is being replaced."""
    await open_again(service)
    every = descendants(service.worker(actor))
    # They may or may not have been able to give themselves a title.
    found = [one for one in every if "resource_tracker" not in one.command]
    assert found, every
    return found


@pytest.mark.parametrize(
    ("actor", "reason", "other"),
    [
        ("Stage0Actor", "stage0_lost", "Stage1Actor"),
        ("Stage1Actor", "stage1_lost", "Stage0Actor"),
    ],
)
async def test_a_dead_engine_ends_its_sessions_with_words_and_nothing_outlives_its_owner(
    service: ServeCluster, actor: str, reason: str, other: str
) -> None:
    """One stage loses its engine, the other its actor, so that both start again at once.

    What a session is told of a dead actor is in test_service.py.
    """
    lost = {name: await engine_processes(service, name) for name in (actor, other)}
    async with dial(service) as line:
        caller = await Caller(line, GOES_ON).open()
        await caller.say_until("response.audio.delta")
        os.kill(lost[actor][0].pid, signal.SIGKILL)
        with suppress(ConnectionClosed):
            while True:
                await caller.hear()
        assert caller.heard[-1]["type"] == "session.expired"
        assert caller.heard[-1]["reason"] == reason
        assert line.close_code == 1011
    os.kill(service.worker(other), signal.SIGKILL)
    for name, processes in lost.items():
        assert len(await engine_processes(service, name)) == len(processes)
        while any(map(is_alive, processes)):  # noqa: ASYNC110 - no event crosses the process
            await asyncio.sleep(0.1)


# --- metrics ------------------------------------------------------------------------------------


def metrics(service: ServeCluster) -> dict[tuple[str, str], float]:
    """Return what the gateway shows: values by name and by the stage, added up."""
    with urllib.request.urlopen(f"http://{service.address}/metrics?all=1", timeout=30) as answer:
        text = answer.read().decode()
    found: dict[tuple[str, str], float] = defaultdict(float)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            state = sample.labels.get("state", "")
            found[f"{sample.name}{state and '.'}{state}", sample.labels.get("stage", "")] += (
                sample.value
            )
    return found


MOVED = (
    ("ray_vllm_generation_tokens_total", ""),
    ("ray_vllm_prompt_tokens_total", ""),
    ("ray_vllm_inter_token_latency_seconds_count", ""),
    ("duplex_engine_kv_tokens.used", "stage0"),
    ("duplex_engine_kv_tokens.used", "stage1"),
    ("duplex_stage1_batch_sessions_count", ""),
)
"""What a spoken second moves, in several processes."""


def is_reported(shown: dict[tuple[str, str], float]) -> bool:
    """Whether every process has told of what it did."""
    return all(shown[name] > 0 for name in MOVED)


async def test_vllms_metrics_and_both_memories_are_shown(service: ServeCluster) -> None:
    async with dial(service) as line:
        caller = await Caller(line, audio=LISTENS_AGAIN).open()
        await caller.say_until("response.audio.delta")
        async with asyncio.timeout(PATIENCE_S):
            # Each process reports by itself.
            while not is_reported(  # noqa: ASYNC110 - another process
                shown := await asyncio.to_thread(metrics, service)
            ):
                await asyncio.sleep(1.0)
    for stage in ("stage0", "stage1"):
        held, reserved, capacity = (
            shown[f"duplex_engine_kv_tokens.{state}", stage]
            for state in ("used", "reserved", "capacity")
        )
        assert 0 < held <= reserved <= capacity


def unmoved(prometheus: Prometheus, exprs: list[str], since_s: float) -> list[str]:
    """Return those of these queries that have not moved until now."""
    over = Range.between(since_s, time.time(), step_s=STEP_S)
    return [expr for expr in exprs if not moves(prometheus, expr, over)]


async def test_the_panels_that_this_model_alone_moves(
    service: ServeCluster, tmp_path: Path
) -> None:
    exprs = [one for panel in drawn_panels() for one in panel.exprs if is_of(one, MINICPMO_ALONE)]
    assert exprs
    with prometheus_beside_ray(tmp_path) as prometheus:
        began_s, left = time.time(), exprs
        async with dial(service) as line:
            caller = await Caller(line, audio=GOES_ON).open()
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_S):
                    while left:  # a histogram moves with Ray's second report of it
                        await caller.say_until("response.audio.delta")
                        left = await asyncio.to_thread(unmoved, prometheus, exprs, began_s)
    assert left == []
