"""Writes docs/metrics.md from the definitions of the metrics."""

from typing import Final

from serve_app.metrics.definitions import METRICS
from serve_app.metrics.metric import Kind, Merge, Metric, Owner

HEAD: Final = """\
Every metric of the service, from `serve_app/metrics/definitions.py`. There are two places to
read them:

* **Ray's exporter**, one a node, for Prometheus. Each name has `ray_` in front there, and each
  series Ray's own labels beside those below (`WorkerId` is the process). The Ray that `make
  serve` starts chooses its port; the addresses are listed in
  `/tmp/ray/prom_metrics_service_discovery.json`, which Prometheus reads as it is
  (`file_sd_configs`). A Ray that was started with `ray start --metrics-export-port PORT` has
  that port.
* **`GET /metrics` of the gateway**, for whoever has no service discovery: the exporters of all
  nodes read together, without `ray_` and without Ray's labels, the series of all processes
  merged. Whoever asks needs a key where the service has any, unless the deploy file says
  `gateway.metrics_public: true`. When a node does not answer, there is no page (503) rather
  than one that leaves it out. `/metrics?all=1` has vLLM's own metrics (`ray_vllm_*`) as well,
  as they are.

Every label has a closed set of values. Counters and gauges are there from the start of their
process, at zero; in Ray's exporter a histogram's series appear with their first value, in
`/metrics` they are there at once. So what a process observes first, up to Ray's first report
of it, is in none of Prometheus' rates: percentiles are of what came later. Ray reports every
10 s, or as `RAY_metrics_report_interval_ms` says.

**`_sum`.** Ray 2.60 counts each value of a histogram as the middle of its bucket: the buckets
and the `_count` are exact, the `_sum` is not. So read quantiles, not means. `/metrics` has no
`_sum`.

**When a process ends**, its gauges are gone within two reports; what it counted stays as it
was, as long as its node lives. `/metrics` adds the counters of all processes that there have
been.

**vLLM's own** (`ray_vllm_*`) are switched off with `metrics: false` in an engine's settings. Of two
engines on one node whose histograms have other buckets, such as those of prompt lengths, Ray shows
one's and warns of it.

**Playback** is that of a client which plays what it is sent at once and without pause.
"""
KINDS: Final = {
    Owner.GATEWAY: "The gateway",
    Owner.ENGINES: "The engines of both stages",
    Owner.STAGE1: "Stage1's engines",
    Owner.EVERY: "Gateway and engines alike",
}


def metrics_page(notice: str) -> str:
    """Return the page."""
    parts = ["# Metrics\n", notice, HEAD]
    for owner, title in KINDS.items():
        owned = [metric for metric in METRICS if metric.owner is owner]
        parts += [f"## {title}\n", "| name | kind | labels | is |", "| --- | --- | --- | --- |"]
        parts += [_row(metric) for metric in owned] + [""]
    parts += ["## Buckets\n", "| name | upper edges |", "| --- | --- |"]
    parts += [
        f"| `{metric.name}` | {', '.join(f'{edge:g}' for edge in metric.buckets)} |"
        for metric in METRICS
        if metric.buckets
    ]
    parts += ["", "## Labels that go together\n"]
    for metric in METRICS:
        if metric.only:
            sets = ", ".join(f"`{'` / `'.join(labels)}`" for labels in metric.only)
            parts.append(f"* `{metric.name}` ({', '.join(metric.labels)}): {sets}")
    return "\n".join([*parts, ""])


def _row(metric: Metric) -> str:
    kind = metric.kind.value
    if metric.kind is Kind.GAUGE and metric.merge is not Merge.SUM:
        kind += f", the {metric.merge.value} of all"
    return f"| `{metric.name}` | {kind} | {_labels(metric)} | {metric.help} |"


def _labels(metric: Metric) -> str:
    if metric.only:
        return ", ".join(f"`{name}`" for name in metric.labels) + ": below"
    return "; ".join(
        f"`{name}`: {', '.join(f'`{value}`' for value in values)}"
        for name, values in metric.labels.items()
    )
