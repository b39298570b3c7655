"""The metrics on real Ray: there from the start, moved by a conversation, right after a loss."""

import asyncio
import socket
import struct
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack

import pytest
import ray
from prometheus_client.parser import text_string_to_metric_families
from websockets.asyncio.client import connect

from serve_app.metrics.definitions import (
    AUDIO_SECONDS,
    ENGINE_STARTED,
    ENGINE_UP,
    LEASES_ENDED,
    METRICS,
    OPEN_SESSIONS,
    OPEN_SOCKETS,
    RESPONSES,
    SESSIONS_BEGUN,
    SESSIONS_ENDED,
    SOCKETS_CLOSED,
    STAGE1_AUDIO,
    STAGE_SLOTS,
    UNIT_SECONDS,
    UNITS,
)
from serve_app.metrics.exporters import exporter_url
from serve_app.metrics.metric import Kind, Metric
from tests.fakes.wire import append, client, update
from tests.serve.test_service import AUTO, until
from tests.support.serve_cluster import ServeCluster

pytestmark = [pytest.mark.timeout(180), pytest.mark.fresh_cluster]

SESSIONS = 64

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def service(cluster: ServeCluster) -> Iterator[ServeCluster]:
    settings = {"sentences": 1, "speak_at_units": [1], "chunk_delay_ms": 5}
    limits = {"max_sessions": SESSIONS, "disconnect_grace_s": 0}
    cluster.deploy("scripted.yaml", {"model_settings": settings, "limits": limits})
    yield cluster
    cluster.delete()


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:
        text: str = answer.read().decode()
    return text


def shown(service: ServeCluster) -> Samples:
    """Return what GET /metrics shows."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(fetch(f"http://{service.address}/metrics"))
        for sample in family.samples
    }


def value(samples: Samples, metric: Metric, *labels: str, suffix: str = "") -> float:
    own = frozenset(zip(metric.labels, labels, strict=True))
    return samples[metric.name + suffix, own]


async def until_shown(service: ServeCluster, holds: Callable[[Samples], bool]) -> Samples:
    """Wait until the page says so: Ray reports every ten seconds."""
    async with asyncio.timeout(60):
        while True:
            samples = await asyncio.to_thread(shown, service)
            if holds(samples):
                return samples
            await asyncio.sleep(0.5)


def exported() -> str:
    [node] = ray.nodes()  # type: ignore[no-untyped-call]  # has no types
    return fetch(exporter_url(node))


async def test_every_counter_and_gauge_is_in_rays_exporter_from_the_start(
    service: ServeCluster,
) -> None:
    wanted = {
        (f"ray_{metric.name}", frozenset(zip(metric.labels, labels, strict=True)))
        for metric in METRICS
        if metric.kind is not Kind.HISTOGRAM
        for labels in metric.label_sets
    }

    def missing() -> set[tuple[str, frozenset[tuple[str, str]]]]:
        text = "\n".join(line for line in exported().splitlines() if "ray_duplex_" in line) + "\n"
        found = {
            (sample.name, frozenset((k, v) for k, v in sample.labels.items() if k in names))
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        return wanted - found

    names = {name for metric in METRICS for name in metric.labels}
    async with asyncio.timeout(30):
        while left := await asyncio.to_thread(missing):  # noqa: ASYNC110 - another process
            await asyncio.sleep(1.0)
    assert not left
    # A series is there before its engine has started; what is reported next says that it has.
    samples = await until_shown(
        service,
        lambda s: all(
            value(s, ENGINE_UP, stage) == 1 and value(s, STAGE_SLOTS, stage, "free") == SESSIONS
            for stage in ("stage0", "stage1")
        ),
    )
    assert value(samples, SESSIONS_BEGUN, "duplex") == 0
    for stage in ("stage0", "stage1"):
        assert abs(time.time() - value(samples, ENGINE_STARTED, stage)) < 600


async def test_a_conversation_and_an_abrupt_leave_move_them(service: ServeCluster) -> None:
    url = f"ws://{service.address}/v1/realtime?duplex=1"
    async with connect(url, max_size=None, compression=None) as line:
        await line.send(update(**AUTO))
        await until(line, "session.updated")
        during = await until_shown(service, lambda s: value(s, OPEN_SESSIONS, "active") == 1)
        assert value(during, OPEN_SOCKETS) == 1
        await line.send(append(1_000))
        await until(line, "response.done")
        await line.send(client("session.close"))
        await until(line, "session.closed")
    async with connect(url, max_size=None, compression=None) as line:
        await line.send(update(**AUTO))
        await until(line, "session.updated")
        plain = line.transport.get_extra_info("socket")
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        line.transport.abort()
    after = await until_shown(
        service,
        lambda s: (
            value(s, SESSIONS_ENDED, "disconnect") == 1
            and value(s, OPEN_SESSIONS, "active") == value(s, OPEN_SOCKETS) == 0
            and value(s, STAGE_SLOTS, "stage1", "taken") == 0
        ),
    )
    assert value(after, SESSIONS_BEGUN, "duplex") == 2
    assert value(after, SESSIONS_ENDED, "client_close") == 1
    assert value(after, RESPONSES, "completed", "stop") == 1
    assert value(after, UNITS, "speak", "user") == 1
    assert value(after, AUDIO_SECONDS, "in") == 1.0
    assert value(after, AUDIO_SECONDS, "out") == pytest.approx(0.6)
    assert value(after, STAGE1_AUDIO) == pytest.approx(0.6)
    assert sum(n for (name, _), n in after.items() if name == SOCKETS_CLOSED.name) == 2
    for stage in ("stage0", "stage1"):
        for part in ("queue", "compute", "transfer", "total"):
            assert value(after, UNIT_SECONDS, stage, part, suffix="_count") >= 1, (stage, part)
        ended = [n for (name, _), n in after.items() if name == LEASES_ENDED.name]
        assert sum(ended) == 4
    counted = value(after, UNIT_SECONDS, "stage0", "total", suffix="_count")
    assert counted == sum(n for (name, _), n in after.items() if name == UNITS.name)


async def test_the_page_is_whole_while_64_sessions_talk(
    service: ServeCluster,
) -> None:
    url = f"ws://{service.address}/v1/realtime?duplex=1"
    async with AsyncExitStack() as stack:
        lines = [
            await stack.enter_async_context(connect(url, max_size=None, compression=None))
            for _ in range(SESSIONS)
        ]
        for line in lines:
            await line.send(update(**AUTO))
        for line in lines:
            await until(line, "session.updated")
        for line in lines:
            await line.send(append(1_000))
        # How long it takes is printed, not asserted: this machine may have other things to do.
        took_s = []
        for _ in range(5):
            began_s = time.monotonic()
            assert len(await asyncio.to_thread(shown, service)) > 500
            took_s.append(time.monotonic() - began_s)
        print(f"GET /metrics: {sorted(round(one, 3) for one in took_s)} s")  # noqa: T201
        await asyncio.gather(*(line.close() for line in lines))  # one after another takes longer
