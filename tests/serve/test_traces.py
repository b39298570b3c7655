"""One unit's trace over three processes on real Ray, received as a collector would."""

import base64
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest
from websockets.asyncio.client import ClientConnection, connect

from tests.fakes.rig import audio
from tests.fakes.wire import append, client, update
from tests.serve.test_service import AUTO, until
from tests.support.otlp_receiver import OtlpReceiver, SpanSeen, otlp_receiver
from tests.support.serve_cluster import ServeCluster

PARENTS = {
    "unit": None,
    "stage0.append": "unit",
    "speech": "unit",
    "stage1.speak": "speech",
}
"""Each span of a spoken unit but those of a stage's own time, and what it goes on from."""
SKEW_NS = 50_000_000
"""Between the clocks of two processes, which both set them by the same wall clock."""
SECRET = "strawberry"


@pytest.fixture(scope="module")
def receiver() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as running:
        yield running


@pytest.fixture(scope="module")
def deployed(cluster: ServeCluster, receiver: OtlpReceiver) -> Iterator[ServeCluster]:
    settings = {
        "speak_at_units": [1, 2],
        "sentences": 1,
        "sentence": SECRET,
        "unit_delay_ms": 20,
        "chunk_delay_ms": 5,
        "hang_at_chunks": [5],
    }
    cluster.deploy(
        "scripted.yaml",
        {
            "model_settings": settings,
            "limits": {"max_sessions": 2, "disconnect_grace_s": 0},
            "tracing": {"endpoint": receiver.endpoint},
        },
        environment={
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=here",
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "authorization=Bearer%20collector",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        },
    )
    yield cluster
    cluster.delete()


@pytest.fixture
def service(deployed: ServeCluster) -> ServeCluster:
    deployed.until_free()
    return deployed


def dial(service: ServeCluster) -> connect:
    return connect(f"ws://{service.address}/v1/realtime?duplex=1", compression=None)


async def begin(line: ClientConnection) -> str:
    """Open a session and say one unit; return the session's id."""
    await line.send(update(instructions=SECRET, **AUTO))
    created = (await until(line, "session.created"))[-1]
    await line.send(append(1000))
    session_id: str = created["session"]["id"]
    return session_id


async def spans_of(receiver: OtlpReceiver, session_id: str, seq: int = 1) -> dict[str, SpanSeen]:
    """Wait for all of a spoken unit; return its spans by their names, with the stage's in front."""

    def own(spans: list[SpanSeen]) -> dict[str, SpanSeen]:
        roots = [
            span
            for span in spans
            if (span.name, span.values.get("session.id")) == ("unit", session_id)
            and span.values["duplex.seq"] == seq
        ]
        trace = [span for span in spans if roots and span.trace == roots[0].trace]
        names = {span.id: span.name for span in trace}
        return {
            f"{names[span.parent]}/{span.name}"
            if span.name in ("queue", "compute")
            else span.name: span
            for span in trace
            if span.name not in ("queue", "compute") or span.parent in names
        }

    return own(await receiver.until(lambda spans: set(PARENTS) <= set(own(spans))))


async def test_one_spoken_unit_is_one_trace_over_three_processes(
    service: ServeCluster, receiver: OtlpReceiver
) -> None:
    async with dial(service) as line:
        session_id = await begin(line)
        await until(line, "rate_limits.updated")
        spans = await spans_of(receiver, session_id)
    assert set(spans) == {
        *PARENTS,
        *(f"{stage}/{part}" for stage in STAGES for part in ("queue", "compute")),
    }
    for name, parent in PARENTS.items():
        assert spans[name].parent == (b"" if parent is None else spans[parent].id), name
    parts = {name: spans[name].resource["service.name"] for name in PARENTS}
    assert parts == {
        "unit": "duplex-gateway",
        "stage0.append": "duplex-stage0",
        "speech": "duplex-gateway",
        "stage1.speak": "duplex-stage1",
    }
    processes = {span.resource["service.name"]: span.resource for span in spans.values()}
    assert len({resource["process.pid"] for resource in processes.values()}) == 3
    for resource in processes.values():
        assert resource["deployment.environment.name"] == "here"
    assert {headers["authorization"] for headers in receiver.headers} == {"Bearer collector"}
    show_order(spans)
    assert spans["stage1.speak"].values["duplex.chunks"] == 3
    assert spans["speech"].values == {"duplex.chunks": 3}
    assert not any(span.has_failed for span in spans.values())


STAGES = ("stage0.append", "stage1.speak")


def show_order(spans: dict[str, SpanSeen]) -> None:
    """Show that what comes later comes later, as far as the clocks of processes agree."""
    unit, hearing, speech, speaking = (spans[name] for name in PARENTS)
    assert unit.began_ns <= hearing.began_ns + SKEW_NS
    assert hearing.ended_ns <= unit.ended_ns + SKEW_NS
    assert unit.ended_ns <= speech.began_ns + 1_000
    assert speech.began_ns <= speaking.began_ns + SKEW_NS
    assert speaking.ended_ns <= speech.ended_ns + SKEW_NS
    for stage in STAGES:
        queue, compute = spans[f"{stage}/queue"], spans[f"{stage}/compute"]
        assert queue.fits_into(spans[stage])
        assert compute.fits_into(spans[stage])
        assert queue.ended_ns == compute.began_ns
    assert spans["stage0.append/compute"].ended_ns - hearing.began_ns >= 20_000_000


async def test_an_interruption_ends_the_speech_in_both_processes(
    service: ServeCluster, receiver: OtlpReceiver
) -> None:
    async with dial(service) as line:
        session_id = await begin(line)
        await until(line, "rate_limits.updated")
        await line.send(append(1000))
        await until(line, "response.audio.delta")  # the fourth chunk; the fifth hangs
        await line.send(client("barge_in"))
        spans = await spans_of(receiver, session_id, seq=2)
    for name in ("speech", "stage1.speak"):
        assert spans[name].values["duplex.cancelled"] is True, name
        assert spans[name].values["duplex.chunks"] == 1, name
        assert not spans[name].has_failed, name


async def test_two_sessions_at_once_have_traces_of_their_own(
    service: ServeCluster, receiver: OtlpReceiver
) -> None:
    async with AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(dial(service)) for _ in range(2)]
        ids = [await begin(line) for line in lines]
        for line in lines:
            await until(line, "rate_limits.updated")
        found = [await spans_of(receiver, session_id) for session_id in ids]
    assert found[0]["unit"].trace != found[1]["unit"].trace
    for session_id, spans in zip(ids, found, strict=True):
        assert {spans[name].values["session.id"] for name in ("unit", *STAGES)} == {session_id}


async def test_no_span_has_anything_of_what_was_said(
    service: ServeCluster, receiver: OtlpReceiver
) -> None:
    async with dial(service) as line:
        session_id = await begin(line)
        await until(line, "rate_limits.updated")
        await spans_of(receiver, session_id)
    said = repr(receiver.spans)
    assert SECRET not in said
    assert base64.b64encode(audio(1000).data).decode()[:40] not in said
