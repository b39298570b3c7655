"""One unit's trace over three processes on real Ray, received as a collector would."""

from collections.abc import Iterator

import pytest
from websockets.asyncio.client import connect

from tests.fakes.wire import append, client, update
from tests.serve.test_service import AUTO, until
from tests.support.otlp_receiver import OtlpReceiver, SpanSeen, otlp_receiver
from tests.support.serve_cluster import ServeCluster

pytestmark = pytest.mark.timeout(180)

PARTS = {"unit", "speech", "stage0.append", "stage1.speak", "queue", "compute"}


@pytest.fixture(scope="module")
def receiver() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as running:
        yield running


@pytest.fixture(scope="module")
def service(cluster: ServeCluster, receiver: OtlpReceiver) -> Iterator[ServeCluster]:
    settings = {"sentences": 1, "speak_at_units": [1], "hang_at_chunks": [5], "chunk_delay_ms": 5}
    cluster.deploy(
        "scripted.yaml",
        {
            "model_settings": settings,
            "limits": {"max_sessions": 2, "disconnect_grace_s": 0},
            "tracing": {"endpoint": receiver.endpoint},
        },
        environment={
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=here",
            "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20collector",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        },
    )
    yield cluster
    cluster.delete()


def dial(service: ServeCluster) -> connect:
    return connect(f"ws://{service.address}/v1/realtime?duplex=1", compression=None)


async def test_one_spoken_unit_is_one_trace_over_three_processes(
    service: ServeCluster, receiver: OtlpReceiver
) -> None:
    async with dial(service) as line:
        await line.send(update(**AUTO))
        created = (await until(line, "session.created"))[-1]
        await line.send(append(1000))
        await until(line, "rate_limits.updated")
        await line.send(client("session.close"))
    session_id = created["session"]["id"]
    spans = await trace_of(receiver, session_id)
    assert {span.name for span in spans} == PARTS


async def trace_of(receiver: OtlpReceiver, session_id: str) -> list[SpanSeen]:
    """Wait for all of the first unit of a session, and return it."""

    def has_all(spans: list[SpanSeen]) -> bool:
        return {span.name for span in of(spans)} >= PARTS

    def of(spans: list[SpanSeen]) -> list[SpanSeen]:
        roots = [
            span
            for span in spans
            if span.name == "unit" and span.values["session.id"] == session_id
        ]
        return [span for span in spans if roots and span.trace == roots[0].trace]

    return of(await receiver.until(has_all))
