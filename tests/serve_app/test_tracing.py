"""The way of spans out of a process: over real HTTP, bounded, quiet, and gone without a wait."""

import os
import socket
import subprocess
import sys
import threading

import pytest

from serve_app.clock import MonotonicClock
from serve_app.metrics.definitions import SPANS_DROPPED
from serve_app.metrics.meter import NO_METER, Meter
from serve_app.tracing.exporting import MOST_WAITING, BoundedWay, otlp_tracer
from serve_app.tracing.opening import open_tracer
from serve_app.tracing.settings import (
    HIDDEN,
    NO_TRACING,
    TracingSettings,
    endpoint_fault,
    endpoint_in,
    own_endpoint_fault,
    shown,
    signal_url,
)
from serve_app.tracing.tracer import NO_TRACER, TraceParent
from tests.fakes.meter import CountedMeter
from tests.support.otlp_receiver import otlp_receiver

OURS = "serve_app.tracing.exporting"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")


def sent(
    endpoint: str, *, spans: int = 1, ratio: float | None = None, meter: Meter = NO_METER
) -> BoundedWay:
    """Make spans, and close; return how they went."""
    settings = TracingSettings(endpoint, ratio)
    tracer, way = otlp_tracer(settings, "gateway", clock=MonotonicClock(), meter=meter, environ={})
    for _ in range(spans):
        span = tracer.begin("unit", at_s=0.0)
        if span is not None:
            span.end(at_s=1.0)
    tracer.close()
    return way


def test_spans_come_over_the_wire_with_the_process_that_made_them() -> None:
    with otlp_receiver() as receiver:
        way = sent(receiver.endpoint, spans=3)
        assert [span.name for span in receiver.spans] == ["unit"] * 3
    assert (way.waiting, way.dropped) == (0, 0)
    resource = receiver.spans[0].resource
    assert resource["service.name"] == "duplex-gateway"
    assert (resource["host.name"], resource["process.pid"]) == (socket.gethostname(), os.getpid())


def test_standard_variables_name_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "speech")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "x-key=k")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    with otlp_receiver() as receiver:
        sent(receiver.endpoint)
    assert receiver.spans[0].resource["service.name"] == "speech"
    assert receiver.spans[0].resource["deployment.environment.name"] == "test"
    assert receiver.headers[0]["x-key"] == "k"


@pytest.mark.parametrize(
    ("ratio", "variable", "arrive"),
    [(None, None, 200), (0.0, None, 0), (1.0, "0", 200), (None, "0", 0)],
)
def test_the_deploy_files_share_comes_before_the_environments(
    ratio: float | None, variable: str | None, arrive: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable is not None:
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
        monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", variable)
    with otlp_receiver() as receiver:
        sent(receiver.endpoint, spans=200, ratio=ratio)
    assert len(receiver.spans) == arrive


def test_a_stage_follows_the_gateways_choice() -> None:
    settings = TracingSettings("http://127.0.0.1:1", 0.0)
    tracer, _ = otlp_tracer(settings, "stage0", clock=MonotonicClock(), meter=NO_METER, environ={})
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0"
    assert tracer.begin("stage0.append", at_s=0.0, parent=TraceParent(trace + "1")) is not None
    assert tracer.begin("stage0.append", at_s=0.0, parent=TraceParent(trace + "0")) is None
    tracer.close()


def test_an_endpoint_that_refuses_is_told_of_once_and_so_is_its_return(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with otlp_receiver() as receiver:
        receiver.answer = 400
        meter, clock = CountedMeter(), MonotonicClock()
        settings = TracingSettings(receiver.endpoint)
        tracer, way = otlp_tracer(settings, "gateway", clock=clock, meter=meter, environ={})
        for round_ in range(1, 4):
            span = tracer.begin("unit", at_s=0.0)
            assert span is not None
            span.end(at_s=1.0)
            until_dropped(way, round_)
        receiver.answer = 200
        span = tracer.begin("unit", at_s=0.0)
        assert span is not None
        span.end(at_s=1.0)
        tracer.close()
        assert len(receiver.spans) == 1
    assert meter.of(SPANS_DROPPED) == {("not_sent",): 3}
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2, said
    assert "can not be sent to" in said[0]
    assert "400" in said[0]
    assert "again" in said[1]
    assert {record.name for record in caplog.records} == {OURS}


def said_of(
    endpoint: str | None, caplog: pytest.LogCaptureFixture, environ: dict[str, str]
) -> list[str]:
    """Send a span to an endpoint that does not take it; return what is logged."""
    clock, meter = MonotonicClock(), CountedMeter()
    settings = TracingSettings(endpoint)
    tracer, way = otlp_tracer(settings, "gateway", clock=clock, meter=meter, environ=environ)
    span = tracer.begin("unit", at_s=0.0)
    assert span is not None
    span.end(at_s=1.0)
    until_dropped(way, 1)
    tracer.close()
    assert meter.of(SPANS_DROPPED) == {("not_sent",): 1}
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("status", [301, 302, 304, 307, 308, 399])
def test_an_endpoint_that_redirects_has_taken_nothing(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    with otlp_receiver() as receiver:
        receiver.answer = status
        [line] = said_of(receiver.endpoint, caplog, {})
    assert line == (
        f"traces can not be sent to {receiver.endpoint}/v1/traces: status {status}; "
        "they are dropped"
    )


@pytest.mark.parametrize("status", [200, 202, 204])
def test_every_status_of_success_means_that_the_spans_were_taken(status: int) -> None:
    with otlp_receiver() as receiver:
        receiver.success = status
        assert sent(receiver.endpoint).dropped == 0
    assert len(receiver.spans) == 1


def test_the_words_of_an_endpoint_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with otlp_receiver() as receiver:
        receiver.answer, receiver.reason = 400, "whatever it says"
        [line] = said_of(receiver.endpoint, caplog, {})
    assert "status 400;" in line
    assert "whatever" not in caplog.text


@pytest.mark.parametrize("of", ["file", "OTEL_EXPORTER_OTLP_ENDPOINT"])
@pytest.mark.parametrize("path", ["", "/x?token=pw-secret"])
def test_a_password_in_an_address_is_not_logged(
    of: str, path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "0.5")  # else it tries for ten seconds
    endpoint = f"http://user:pw-secret@127.0.0.1:{port}{path}"
    if of == "file":
        [line] = said_of(endpoint, caplog, {})
    else:
        monkeypatch.setenv(of, endpoint)
        [line] = said_of(None, caplog, dict(os.environ))
    assert f" http://127.0.0.1:{port}/" in line
    assert "ConnectionError;" in line
    assert "pw-secret" not in caplog.text
    assert "user" not in caplog.text


def test_one_that_says_nothing_costs_nobody_a_wait_and_what_finds_no_room_is_counted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        # It takes connections and never answers; closing must not wait for the ten seconds that
        # the library gives it.
        meter = CountedMeter()
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        way = sent(endpoint, spans=MOST_WAITING + 600, meter=meter)
        assert way.waiting + way.dropped == MOST_WAITING + 600
        assert way.waiting > 0
        assert meter.of(SPANS_DROPPED)["no_room",] >= 600


def until_dropped(way: BoundedWay, spans: int) -> None:
    """Wait until so many are dropped; the test's own time limit is the bound."""
    while way.dropped < spans:
        threading.Event().wait(0.01)


@pytest.mark.parametrize(
    ("endpoint", "is_good"),
    [
        ("http://127.0.0.1:4318", True),
        ("https://collector.example/otlp", True),
        ("http://[::1]:4318/v1/traces", True),
        ("collector:4318", False),
        ("grpc://collector:4317", False),
        ("http://", False),
        ("http://collector:port", False),
        ("http://collector:0", False),
        ("http://collector:99999", False),
        ("http://collector/?a=b", False),
        ("", False),
    ],
)
def test_what_an_endpoint_looks_like(endpoint: str, *, is_good: bool) -> None:
    assert (endpoint_fault(endpoint) is None) is is_good


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://user:pw@collector:4318",
        "http://token@collector:4318/v1/traces",
        "http://user:p/w@collector",
        "user:pw@collector:4318",
    ],
)
def test_a_deploy_file_names_no_user_and_no_password(endpoint: str) -> None:
    fault = own_endpoint_fault(endpoint)
    assert fault is not None
    assert "OTEL_EXPORTER_OTLP_TRACES_HEADERS" in fault
    assert "pw" not in fault
    assert "collector" not in fault


@pytest.mark.parametrize(
    ("endpoint", "seen"),
    [
        ("http://user:pw@collector:4318/x", "http://collector:4318/x"),
        ("https://user@[::1]:4318", "https://[::1]:4318"),
        ("http://collector/x?token=pw#pw", "http://collector/x"),
        ("collector:4317", "'collector:4317'"),
        ("user:pw@collector:4317", HIDDEN),
        ("http://user:p/w@collector:4317", HIDDEN),
        ("http://user:1?pw@collector", HIDDEN),
        ("http://user:1#pw@collector", HIDDEN),
        ("http://[user:pw@collector", HIDDEN),
        ("http://collector:port?token=pw", HIDDEN),
    ],
)
def test_what_is_said_of_an_endpoint(endpoint: str, seen: str) -> None:
    assert shown(endpoint) == seen
    fault = endpoint_fault(endpoint)
    assert fault is None or fault.startswith(seen)


def test_the_signals_path_is_added_once() -> None:
    assert signal_url("http://c:4318") == signal_url("http://c:4318/") == "http://c:4318/v1/traces"
    assert signal_url("http://c:4318/v1/traces") == "http://c:4318/v1/traces"


@pytest.mark.parametrize(
    ("environ", "endpoint"),
    [
        ({}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:1/"}, "http://c:1/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://t:2/x"}, "http://t:2/x"),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:1",
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://t:2/x",
            },
            "http://t:2/x",
        ),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:1", "OTEL_SDK_DISABLED": "true"}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:1", "OTEL_TRACES_EXPORTER": "none"}, None),
    ],
)
def test_the_environments_endpoint(environ: dict[str, str], endpoint: str | None) -> None:
    assert endpoint_in(environ) == endpoint


def test_without_an_endpoint_there_is_no_tracer() -> None:
    assert open_tracer(NO_TRACING, "gateway", clock=MonotonicClock(), meter=NO_METER) is NO_TRACER


def test_a_variable_that_names_no_address_is_told_of_and_traces_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317")
    assert open_tracer(NO_TRACING, "gateway", clock=MonotonicClock(), meter=NO_METER) is NO_TRACER
    assert "is no address for OTLP over HTTP" in caplog.text


def test_a_variable_alone_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    with otlp_receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        tracer = open_tracer(NO_TRACING, "stage1", clock=MonotonicClock(), meter=NO_METER)
        span = tracer.begin("stage1.speak", at_s=0.0)
        assert span is not None
        span.end(at_s=1.0)
        tracer.close()
    assert receiver.spans[0].resource["service.name"] == "duplex-stage1"


def test_what_sends_spans_is_not_imported_where_nobody_traces() -> None:
    code = (
        "import sys, serve_app.gateway.gateway, serve_app.leasing.engine_actor; "
        "print([m for m in sys.modules if m.startswith('opentelemetry.exporter.otlp')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
