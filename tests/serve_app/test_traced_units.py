"""The traces that a gateway makes of its sessions' units, over real sockets."""

import base64
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from websockets.asyncio.client import connect

from serve_app.handled import Handled
from serve_app.tracing.settings import TracingSettings
from serve_app.tracing.traced_units import MOST_KEPT, TracedUnits
from session.config import SessionLimits
from session.effects import SubmitUnit
from session.errors import StageFailed
from session.fence import Fence
from session.ids import OperationId, SessionId
from session.stimuli import SpeechArrived, UnitFinished
from session.stream_events import FRAME_MS
from session.unit import Decision, SpeechChunk, Unit, UnitResult
from tests.fakes.clock import FakeClock
from tests.fakes.rig import Rig, audio, config, settle
from tests.fakes.server import Service, serving, until
from tests.fakes.stages import Call, ScriptedDirectory, answering
from tests.fakes.traces import WALL_NS, KeptSpans
from tests.fakes.wire import append, client, update
from tests.support.otlp_receiver import SpanSeen

AUTO: dict[str, Any] = {"extra_body": {"auto_response": True}}
LISTENS = UnitResult(Decision.LISTEN)
SECRET = "the user's secret"


@asynccontextmanager
async def traced(
    directory: ScriptedDirectory, *, limits: SessionLimits | None = None
) -> AsyncIterator[tuple[Service, KeptSpans]]:
    """Run a gateway whose spans stay here."""
    kept = KeptSpans()
    async with serving(directory, limits=limits) as service:
        service.gateway.tracer = kept.tracer()
        yield service, kept
    assert kept.is_closed


def calls(directory: ScriptedDirectory, name: str) -> list[Call]:
    return [call for call in directory.knobs.calls if call.name == name]


def submit(fence: Fence, seq: int) -> SubmitUnit:
    return SubmitUnit(fence, seq, OperationId(f"op_{seq}"), Unit(b""), 0)


def header(span: SpanSeen) -> str:
    """Return what the span is called towards other processes."""
    return f"00-{span.trace.hex()}-{span.id.hex()}-01"


def trace_text(call: Call) -> str:
    """Return the trace that a call goes on with; whether its id is random may be told too."""
    assert call.trace is not None
    return f"{call.trace.text[:-2]}01"


async def test_a_spoken_unit_is_one_trace_until_its_last_chunk_is_sent() -> None:
    directory = answering()
    async with traced(directory) as (service, kept):
        async with service.dial() as line:
            await line.send(update(**AUTO))
            created = (await until(line, "session.created"))[-1]
            await line.send(append(1_000))
            await until(line, "rate_limits.updated")
            await line.send(client("session.close"))
            await until(line, "session.closed")
        await service.idle()
    unit, speech = kept.named("unit")[0], kept.one("speech")
    assert (unit.parent, speech.parent) == (b"", unit.id)
    assert speech.trace == unit.trace
    assert trace_text(calls(directory, "append")[0]) == header(unit)
    assert trace_text(calls(directory, "speak")[0]) == header(speech)
    assert unit.began_ns <= unit.notes[0].at_ns <= unit.ended_ns
    assert unit.notes[0].name == "submitted"
    assert unit.ended_ns <= speech.began_ns + 1 <= speech.ended_ns
    operation = unit.values.pop("duplex.operation_id")
    assert str(operation).startswith("op")
    assert unit.values == {
        "session.id": created["session"]["id"],
        "duplex.incarnation": 0,
        "duplex.epoch": 0,
        "duplex.turn": 0,
        "duplex.seq": 1,
        "duplex.config_generation": 0,
        "duplex.fed": "user",
        "duplex.audio_ms": 1000,
        "duplex.stale": False,
        "duplex.decision": "speak",
    }
    assert speech.values == {"duplex.chunks": 3}
    assert [unit.has_failed, speech.has_failed] == [False, False]


async def test_every_unit_has_a_trace_of_its_own_and_sessions_do_not_mix() -> None:
    directory = answering(max_sessions=2)
    async with traced(directory) as (service, kept):
        ids = []
        async with service.dial() as one, service.dial() as two:
            for line in (one, two):
                await line.send(update(**AUTO))
                ids.append((await until(line, "session.created"))[-1]["session"]["id"])
            for line in (one, two):
                await line.send(append(2_000))
            for line in (one, two):
                await until(line, "rate_limits.updated")
        await service.idle()
    units = [span for span in kept.named("unit") if span.values["duplex.fed"] == "user"]
    assert sorted(str(span.values["session.id"]) for span in units) == sorted([*ids, *ids])
    assert len({span.trace for span in kept.named("unit")}) == len(kept.named("unit"))
    spoken = {span.parent for span in kept.named("speech")}
    assert spoken == {span.id for span in units if span.values["duplex.seq"] == 1}
    by_id = {span.id: span for span in units}
    for call in calls(directory, "speak"):
        parent = next(s for s in kept.named("speech") if trace_text(call) == header(s)).parent
        assert by_id[parent].values["session.id"] == call.fence.session_id


async def test_an_interruption_ends_the_speech_and_marks_the_unit_that_is_out() -> None:
    directory = answering(sentences=3)
    directory.knobs.hold("chunk")
    async with traced(directory) as (service, kept):
        async with service.dial() as line:
            await line.send(update(**AUTO))
            await until(line, "session.created")
            await line.send(append(1_000))
            await directory.knobs.wait_called("chunk")
            directory.knobs.hold("answer")
            await line.send(append(1_000))
            while len(calls(directory, "answer")) < 2:
                await settle()
            await line.send(client("barge_in"))
            await directory.knobs.wait_called("cancel")
            directory.knobs.release("chunk")
            directory.knobs.release("answer")
            while len(kept.named("unit")) < 2:
                await settle()
        await service.idle()
    speech, late = kept.named("speech")[0], kept.named("unit")[1]
    assert speech.values["duplex.cancelled"] is True
    assert not speech.has_failed
    assert (late.values["duplex.cancelled"], late.values["duplex.stale"]) == (True, True)
    assert not late.has_failed


async def test_failures_say_their_kind_and_nothing_of_what_was_said() -> None:
    directory = answering()
    directory.knobs.fail_next("append", StageFailed(SECRET))
    directory.knobs.fail_next("speak", StageFailed(SECRET))
    async with traced(directory) as (service, kept):
        async with service.dial() as line:
            await line.send(update(instructions=SECRET, **AUTO))
            await until(line, "session.created")
            await line.send(append(1_000))
            await until(line, "error")
            await line.send(append(1_000))
            await until(line, "error")
        await service.idle()
    unit, speech = kept.named("unit")[0], kept.one("speech")
    for span in (unit, speech):
        assert (span.has_failed, span.said) == (True, "stage_failed")
        assert span.values["error.type"] == "StageFailed"
    assert SECRET not in repr(kept.spans)


async def test_what_is_open_when_its_session_ends_ends_too() -> None:
    directory = answering()
    directory.knobs.hold("append")
    async with traced(directory) as (service, kept):
        async with service.dial() as line:
            await line.send(update(**AUTO))
            await until(line, "session.created")
            await line.send(append(1_000))
            await directory.knobs.wait_called("append")
            await line.send(client("session.close"))
            await until(line, "session.closed")
            directory.knobs.release("append")
        await service.idle()
    assert kept.one("unit").values["duplex.cancelled"] is True


async def test_speech_that_nobody_is_there_to_hear_ends_when_it_is_made() -> None:
    directory = answering()
    directory.knobs.hold("chunk")
    limits = SessionLimits(disconnect_grace_s=30)
    async with traced(directory, limits=limits) as (service, kept):
        async with service.dial() as line:
            await line.send(update(**AUTO))
            await until(line, "session.created")
            await line.send(append(1_000))
            await directory.knobs.wait_called("chunk")
        directory.knobs.release("chunk")
        while not kept.named("speech"):
            await settle()
        await service.gateway.sessions.close_all("test", within_s=5)
    assert kept.one("speech").values == {"duplex.chunks": 3}


async def test_speech_that_is_sent_as_it_is_played_ends_with_its_last_frame() -> None:
    sent: list[int] = []
    directory = answering()
    async with traced(directory) as (service, kept):
        url = f"ws://127.0.0.1:{service.port}/v1/live/sessions"
        async with connect(url, compression=None) as line:
            await line.send(client("session.start", session={"model": "gpt-live-1"}))
            sound = base64.b64encode(bytes(48_000)).decode()
            await line.send(client("session.input_audio.append", audio=sound))
            while len(sent) < 600 // FRAME_MS:
                await until(line, "session.output_audio.delta")
                sent.append(len(kept.named("speech")))
            await line.send(client("session.close"))
            await until(line, "session.closed")
        await service.idle()
    assert sent[:-1] == [0] * (len(sent) - 1)
    assert kept.one("speech").values == {"duplex.chunks": 3}


async def test_an_endpoint_that_never_answers_harms_no_conversation() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        tracing = TracingSettings(f"http://127.0.0.1:{silent.getsockname()[1]}")
        async with serving(answering(), tracing=tracing) as service, service.dial() as line:
            await line.send(update(**AUTO))
            await until(line, "session.created")
            await line.send(append(1_000))
            await until(line, "rate_limits.updated")
            await line.send(client("session.close"))
            await until(line, "session.closed")


async def test_what_is_not_sampled_leaves_no_span_anywhere() -> None:
    directory = answering()
    async with serving(directory) as service:
        kept = KeptSpans()
        service.gateway.tracer = kept.tracer(sampler=ALWAYS_OFF)
        async with service.dial() as line:
            await line.send(update(**AUTO))
            await until(line, "session.created")
            await line.send(append(1_000))
            await until(line, "rate_limits.updated")
        await service.idle()
    assert kept.spans == []
    assert [call.trace for call in calls(directory, "append")] == [None]


@pytest.mark.parametrize("name", ["append", "speak"])
async def test_without_an_endpoint_the_stages_are_given_no_trace(name: str) -> None:
    async with Rig(answering(), config=config()) as rig:
        rig.post(audio(1_000))
        await rig.knobs.wait_called(name)
        assert [call.trace for call in calls(rig.directory, name)] == [None]


async def test_units_that_are_never_spoken_do_not_pile_up() -> None:
    kept, rig = KeptSpans(), Rig(answering())
    traces = TracedUnits(rig.session, kept.tracer(rig.clock), rig.clock)
    fence = Fence(SessionId("sess_1"), 0, 0, 0)
    for seq in range(1, MOST_KEPT + 11):
        told, asked = UnitFinished(fence, 0, LISTENS), [submit(fence, seq)]
        traces.handled(Handled(told, asked, fence, is_stale=False, at_s=1.0, now=1.5))
    assert [span.values["duplex.seq"] for span in kept.spans] == list(range(1, 11))
    late = SpeechArrived(fence, 70, SpeechChunk(b"", ""))
    traces.handled(Handled(late, [], fence, is_stale=False, at_s=2.0, now=2.0))
    traces.ended()
    assert len(kept.spans) == MOST_KEPT + 10


def test_times_follow_the_process_own_clock() -> None:
    clock = FakeClock()
    kept = KeptSpans()
    clock.advance(100.0)
    span = kept.tracer(clock).begin("unit", at_s=99.5)
    assert span is not None
    child = span.child("speech", at_s=100.25)
    child.end(at_s=101.0)
    span.end(at_s=102.0)
    seen = [(s.name, s.began_ns - WALL_NS, s.ended_ns - WALL_NS) for s in kept.spans]
    assert seen == [("speech", 250_000_000, 1_000_000_000), ("unit", -500_000_000, 2_000_000_000)]
