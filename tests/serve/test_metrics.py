"""The metrics on real Ray: there from the start, moved by a conversation, right after a loss."""

import asyncio
import socket
import struct
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack

import pytest
import ray
from prometheus_client.parser import text_string_to_metric_families
from websockets.asyncio.client import connect

from serve_app.metrics.definitions import (
    AUDIO_SECONDS,
    ENGINE_STARTED,
    ENGINE_UP,
    GATEWAY_STARTED,
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

pytestmark = pytest.mark.fresh_cluster

SESSIONS = 64
PATIENCE_S = 100.0
"""Only a test that has gone wrong ever waits so long."""

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def service(cluster: ServeCluster) -> Iterator[ServeCluster]:
    settings = {"sentences": 1, "speak_at_units": [1], "chunk_delay_ms": 5}
    limits = {"max_sessions": SESSIONS, "disconnect_grace_s": 0}
    cluster.deploy("scripted.yaml", {"model_settings": settings, "limits": limits})
    yield cluster
    cluster.delete()


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
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


async def until_shown(
    service: ServeCluster, tell: Callable[[Samples], dict[str, float]], wanted: Mapping[str, float]
) -> Samples:
    """Wait until the page says so.

    Each process reports by itself, so what belongs together need not come together: all of it is
    waited for.
    """
    until_s = time.monotonic() + PATIENCE_S
    samples = await asyncio.to_thread(shown, service)
    while tell(samples) != wanted and time.monotonic() < until_s:
        await asyncio.sleep(0.5)
        samples = await asyncio.to_thread(shown, service)
    assert tell(samples) == wanted
    return samples


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
    async with asyncio.timeout(PATIENCE_S):
        while left := await asyncio.to_thread(missing):  # noqa: ASYNC110 - another process
            await asyncio.sleep(1.0)
    assert not left
    # A series is there before its engine has started; what is reported next says that it has.
    samples = await until_shown(service, engines, READY)
    assert value(samples, SESSIONS_BEGUN, "duplex") == 0
    for stage in STAGES:
        assert abs(time.time() - value(samples, ENGINE_STARTED, stage)) < 600
    assert abs(time.time() - value(samples, GATEWAY_STARTED)) < 600


STAGES = ("stage0", "stage1")
READY = {f"{stage} {what}": n for stage in STAGES for what, n in (("up", 1), ("free", SESSIONS))}


def engines(samples: Samples) -> dict[str, float]:
    """Return what both engines show of themselves."""
    up = {f"{stage} up": value(samples, ENGINE_UP, stage) for stage in STAGES}
    return up | {f"{stage} free": value(samples, STAGE_SLOTS, stage, "free") for stage in STAGES}


def conversations(samples: Samples) -> dict[str, float]:
    """Return what is left of two conversations, from all three processes."""

    def total(metric: Metric) -> float:
        return sum(n for (name, _), n in samples.items() if name == metric.name)

    return {
        "begun": value(samples, SESSIONS_BEGUN, "duplex"),
        "left": value(samples, SESSIONS_ENDED, "disconnect"),
        "closed": value(samples, SESSIONS_ENDED, "client_close"),
        "open": value(samples, OPEN_SESSIONS, "active"),
        "sockets": value(samples, OPEN_SOCKETS),
        "sockets closed": total(SOCKETS_CLOSED),
        "stage0 taken": value(samples, STAGE_SLOTS, "stage0", "taken"),
        "stage1 taken": value(samples, STAGE_SLOTS, "stage1", "taken"),
        "leases ended": total(LEASES_ENDED),
        "answers": value(samples, RESPONSES, "completed", "stop"),
        "units spoken": value(samples, UNITS, "speak", "user"),
        "s heard": round(value(samples, AUDIO_SECONDS, "in"), 6),
        "s sent": round(value(samples, AUDIO_SECONDS, "out"), 6),
        "s made": round(value(samples, STAGE1_AUDIO), 6),
        "units timed": value(samples, UNIT_SECONDS, "stage0", "total", suffix="_count")
        - total(UNITS),
    }


LEFT = {
    "begun": 2,
    "left": 1,
    "closed": 1,
    "open": 0,
    "sockets": 0,
    "sockets closed": 2,
    "stage0 taken": 0,
    "stage1 taken": 0,
    "leases ended": 4,
    "answers": 1,
    "units spoken": 1,
    "s heard": 1.0,
    "s sent": 0.6,
    "s made": 0.6,
    "units timed": 0,  # no more and no fewer than there were
}


async def test_a_conversation_and_an_abrupt_leave_move_them(service: ServeCluster) -> None:
    url = f"ws://{service.address}/v1/realtime?duplex=1"
    async with connect(url, max_size=None, compression=None) as line:
        await line.send(update(**AUTO))
        await until(line, "session.updated")
        await until_shown(
            service,
            lambda s: {
                "open": value(s, OPEN_SESSIONS, "active"),
                "sockets": value(s, OPEN_SOCKETS),
            },
            {"open": 1, "sockets": 1},
        )
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
    after = await until_shown(service, conversations, LEFT)
    for stage in STAGES:
        for part in ("queue", "compute", "transfer", "total"):
            assert value(after, UNIT_SECONDS, stage, part, suffix="_count") >= 1, (stage, part)


async def test_the_page_is_whole_while_64_sessions_talk(
    service: ServeCluster,
) -> None:
    url = f"ws://{service.address}/v1/realtime?duplex=1"
    async with AsyncExitStack() as stack:
        lines = []
        for _ in range(SESSIONS):
            line = await stack.enter_async_context(connect(url, max_size=None, compression=None))
            await line.send(update(**AUTO))  # at once: who says nothing is sent away
            lines.append(line)
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
