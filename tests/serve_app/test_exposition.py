"""`GET /metrics`: the pages of Ray's exporters, merged into one that Prometheus can read."""

import shutil
import subprocess
from dataclasses import dataclass, field

import pytest
from prometheus_client.parser import text_string_to_metric_families

from serve_app.metrics.definitions import (
    ENGINE_STARTED,
    JAIN,
    METRICS,
    OPEN_SOCKETS,
    RESPONSES,
    STAGE1_BATCH,
    UNITS,
)
from serve_app.metrics.exporters import exporter_url
from serve_app.metrics.exposition import merged
from serve_app.metrics.metric import Kind
from session.errors import StageUnavailable
from tests.fakes.server import serving
from tests.fakes.stages import answering

RAYS = 'Component="core_worker",NodeAddress="10.0.0.{node}",SessionName="s",Version="2.60.0"'
OTEL = 'otel_scope_name="ray",otel_scope_schema_url="",otel_scope_version=""'


def line(name: str, value: float, *, node: int = 1, worker: str = "a", **labels: str) -> str:
    """Return a series as Ray's exporter has it."""
    own = "".join(f'{key}="{text}",' for key, text in labels.items())
    return f'ray_{name}{{{RAYS.format(node=node)},WorkerId="{worker}",{own}{OTEL}}} {value}'


def page(*lines: str) -> str:
    """Return a page as Ray's exporter has it, with something else of Ray's in front."""
    other = ["# HELP ray_tasks Tasks.", "# TYPE ray_tasks gauge", 'ray_tasks{State="RUNNING"} 7.0']
    names = dict.fromkeys(text.partition("{")[0] for text in lines)
    heads = [f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}" for name in names]
    return "\n".join([*other, *heads, *lines]) + "\n"


def values(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return every sample, as prometheus_client reads it."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_every_series_of_every_definition_is_there_from_the_start() -> None:
    found = values(merged([]))
    for metric in METRICS:
        for labels in metric.label_sets:
            own = tuple(sorted(zip(metric.labels, labels, strict=True)))
            name = f"{metric.name}_count" if metric.kind is Kind.HISTOGRAM else metric.name
            assert found[name, own] == metric.starts_at
    assert not any(name.endswith("_sum") for name, _ in found)


def test_types_and_helps_are_those_of_the_definitions() -> None:
    families = {f.name: f for f in text_string_to_metric_families(merged([]).decode())}
    assert len(families) == len(METRICS)
    for metric in METRICS:
        family = families[metric.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (metric.kind.value, metric.help)


def test_counters_and_gauges_of_all_processes_are_one() -> None:
    first = page(
        line(UNITS.name, 3, outcome="speak", fed="user"),
        line(UNITS.name, 4, worker="b", outcome="speak", fed="user"),
        line(OPEN_SOCKETS.name, 2),
        line(JAIN.name, 0.8),
        line(ENGINE_STARTED.name, 100.0, stage="stage0"),
    )
    second = page(
        line(UNITS.name, 5, node=2, outcome="speak", fed="user"),
        line(OPEN_SOCKETS.name, 1, node=2),
        line(JAIN.name, 0.9, node=2),
        line(ENGINE_STARTED.name, 90.0, node=2, stage="stage0"),
        line("duplex_of_an_older_release_total", 1.0),
    )
    found = values(merged([first, second]))
    assert found[UNITS.name, (("fed", "user"), ("outcome", "speak"))] == 12
    assert found[UNITS.name, (("fed", "user"), ("outcome", "listen"))] == 0
    assert found[OPEN_SOCKETS.name, ()] == 3
    assert found[JAIN.name, ()] == 0.8
    assert found[ENGINE_STARTED.name, (("stage", "stage0"),)] == 100
    assert {name for name, _ in found if name.startswith("ray_") or "older" in name} == set()


def test_histograms_are_added_up_bucket_by_bucket() -> None:
    def histogram(worker: str, *counts: int) -> list[str]:
        name = STAGE1_BATCH.name
        edges = ("1.0", "2.0", "4.0", "8.0", "16.0", "32.0", "64.0", "+Inf")
        lines = [
            line(f"{name}_bucket", count, worker=worker, le=edge)
            for edge, count in zip(edges, counts, strict=True)
        ]
        return [*lines, line(f"{name}_count", counts[-1], worker=worker), line(f"{name}_sum", 99)]

    text = "\n".join(
        [
            f"# TYPE ray_{STAGE1_BATCH.name} histogram",
            *histogram("a", 1, 2, 2, 2, 2, 2, 2, 2),
            *histogram("b", 0, 0, 3, 3, 3, 3, 3, 4),
        ]
    )
    found = values(merged([text]))
    name = f"{STAGE1_BATCH.name}_bucket"
    assert [found[name, (("le", edge),)] for edge in ("1.0", "2.0", "4.0", "+Inf")] == [1, 2, 5, 6]
    assert found[f"{STAGE1_BATCH.name}_count", ()] == 6


def test_vllms_own_are_shown_when_asked_for() -> None:
    text = page(
        line("vllm_num_requests_running", 2, model_name="m", engine="0", ReplicaId=""),
        line("vllm_num_requests_running", 3, worker="b", model_name="m", engine="0", ReplicaId=""),
    )
    assert b"vllm" not in merged([text])
    found = values(merged([text], with_vllm=True))
    own = (("ReplicaId", ""), ("engine", "0"), ("model_name", "m"))
    assert found["ray_vllm_num_requests_running", own] == 5


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool on this machine")
def test_promtool_finds_no_fault() -> None:
    text = page(line(RESPONSES.name, 3, status="completed", reason="stop"))
    checked = subprocess.run(
        ["promtool", "check", "metrics"],
        input=merged([text]),
        capture_output=True,
        check=False,
    )
    complaints = (checked.stdout + checked.stderr).decode().splitlines()
    assert [text for text in complaints if text] == []


def test_where_a_node_shows_its_metrics() -> None:
    node = {"NodeManagerAddress": "10.0.0.1", "MetricsExportPort": 8080}
    assert exporter_url(node) == "http://10.0.0.1:8080/metrics"
    assert exporter_url(node | {"NodeManagerAddress": "fd00::1"}) == "http://[fd00::1]:8080/metrics"


# --- the page -----------------------------------------------------------------------------------


@dataclass
class Exporters:
    pages: list[str] = field(default_factory=list)
    fault: StageUnavailable | None = None

    async def read(self) -> list[str]:
        if self.fault is not None:
            raise self.fault
        return self.pages


async def test_the_gateway_shows_the_page() -> None:
    exporters = Exporters([page(line(OPEN_SOCKETS.name, 2))])
    async with serving(answering(), read_exporters=exporters.read) as service:
        answer = await service.get("/metrics")
        assert answer.status == 200
        assert values(answer.body)[OPEN_SOCKETS.name, ()] == 2
        exporters.fault = StageUnavailable("the metrics of a node can not be read")
        assert (await service.get("/metrics")).status == 503


async def test_the_page_needs_a_key_unless_it_is_public() -> None:
    exporters, keys = Exporters(), ("right",)
    async with serving(answering(), read_exporters=exporters.read, api_keys=keys) as service:
        assert (await service.get("/metrics")).status == 401
        assert (await service.get("/metrics", Authorization="Bearer right")).status == 200
        assert (await service.get("/metrics?all=1")).status == 401
    async with serving(
        answering(), read_exporters=exporters.read, metrics_public=True, api_keys=keys
    ) as service:
        assert (await service.get("/metrics")).status == 200
        assert (await service.get("/v1/models")).status == 401
