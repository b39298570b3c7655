"""A Prometheus of its own beside a service, where `prometheus` is installed; else a run says so.

It reads the shipped settings, with other intervals and addresses, and rules as they are given.
"""

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from serve_app.metrics.exporters import exporter_url
from tests.support.promtool import installed
from tools.running_service import free_port

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "deploy/prometheus"
ANSWERS_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Sample:
    """A series' labels, with its name as `__name__` if it has one, and its value now."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class ActiveAlert:
    """An alert that is pending or fires."""

    name: str
    is_firing: bool
    labels: Mapping[str, str]
    """Without the alert's name."""


@dataclass(frozen=True, slots=True)
class Range:
    """The times of a graph's points, from an end backwards."""

    start_s: float
    end_s: float
    step_s: int

    @classmethod
    def between(cls, start_s: float, end_s: float, *, step_s: int) -> "Range":
        """Return the points that lie between these times, the last one at the end."""
        return cls(end_s - (end_s - start_s) // step_s * step_s, end_s, step_s)


class Prometheus:
    """A running Prometheus on loopback."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def query(self, expr: str) -> list[Sample]:
        """Return the series that answer an instant query; a scalar is one without labels."""
        found = self._get("query", query=expr)
        if found["resultType"] in {"scalar", "string"}:
            return [Sample({}, float(found["result"][1]))]
        return [Sample(one["metric"], float(one["value"][1])) for one in found["result"]]

    def query_range(self, expr: str, over: Range) -> list[list[float]]:
        """Return the values of each series that a graph over this time would draw."""
        times = {"start": f"{over.start_s:.3f}", "end": f"{over.end_s:.3f}"}
        found = self._get("query_range", query=expr, step=str(over.step_s), **times)
        return [[float(value) for _, value in one["values"]] for one in found["result"]]

    def alerts(self) -> list[ActiveAlert]:
        """Return every alert that is pending or fires."""
        return [_alert(one) for one in self._get("alerts")["alerts"]]

    def firing(self) -> list[ActiveAlert]:
        """Return those that fire."""
        return [alert for alert in self.alerts() if alert.is_firing]

    def healthy_targets(self) -> int:
        """Return how many targets answered the latest scrape."""
        found = self._get("targets", state="active")["activeTargets"]
        return sum(one["health"] == "up" for one in found)

    def rules(self) -> list[dict[str, Any]]:
        """Return all rules with their `health` and `lastError`, as the API has them."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def is_ready(self) -> bool:
        """Whether it answers."""
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _get(self, what: str, **parameters: str) -> dict[str, Any]:
        url = f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=ANSWERS_WITHIN_S) as answer:
                found: dict[str, Any] = json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(f"{url}: {error.read().decode()}") from error
        return found


def _alert(found: Mapping[str, Any]) -> ActiveAlert:
    labels = {name: text for name, text in found["labels"].items() if name != "alertname"}
    return ActiveAlert(found["labels"]["alertname"], found["state"] == "firing", labels)


def settings(exporters: Path, interval_s: int) -> str:
    """Return the shipped settings with this list of exporters, read so often."""
    tree = yaml.safe_load((SHIPPED / "prometheus.yml").read_text())
    tree["global"] |= {
        "scrape_interval": f"{interval_s}s",
        "scrape_timeout": f"{interval_s}s",
        "evaluation_interval": f"{interval_s}s",
    }
    [job] = tree["scrape_configs"]
    [discovery] = job["file_sd_configs"]
    discovery["files"] = [str(exporters)]
    return yaml.safe_dump(tree, sort_keys=False)


@contextmanager
def prometheus(
    folder: Path, exporters: Sequence[str], *, rules: str | None = None, interval_s: int = 1
) -> Iterator[Prometheus]:
    """Run Prometheus on these exporters (`host:port`) until the end; it keeps all in `folder`.

    `rules` is the text of the file of rules; the shipped one if nothing is said.
    """
    listed = folder / "exporters.json"
    listed.write_text(json.dumps([{"labels": {"job": "ray"}, "targets": list(exporters)}]))
    (folder / "prometheus.yml").write_text(settings(listed, interval_s))
    shipped = (SHIPPED / "rules.yaml").read_text()
    (folder / "rules.yaml").write_text(shipped if rules is None else rules)
    with running_prometheus(folder / "prometheus.yml", folder) as running:
        until(lambda: running.healthy_targets() == len(exporters), "read the exporters")
        yield running


@contextmanager
def prometheus_beside_ray(folder: Path, *, interval_s: int = 2) -> Iterator[Prometheus]:
    """Run Prometheus with the shipped settings and rules on the exporters that Ray itself lists.

    Other than shipped are where that list is, because each Ray has its own, and the intervals,
    because nobody waits for a test.
    """
    # Needs the environment that tests give to Ray.
    import ray  # noqa: PLC0415
    from ray._private.metrics_agent import PrometheusServiceDiscoveryWriter  # noqa: PLC0415

    # What Ray's dashboard does every five seconds; the node of the tests has no dashboard.
    lister = PrometheusServiceDiscoveryWriter(ray.get_runtime_context().gcs_address, str(folder))
    lister.write()  # type: ignore[no-untyped-call]  # has no types
    listed = Path(lister.get_target_file_name())  # type: ignore[no-untyped-call]  # the same
    (folder / "prometheus.yml").write_text(settings(listed, interval_s))
    shutil.copy(SHIPPED / "rules.yaml", folder / "rules.yaml")
    with running_prometheus(folder / "prometheus.yml", folder) as running:
        # Ray lists more than its nodes; what is counted is in the nodes' exporters.
        [node] = ray.nodes()  # type: ignore[no-untyped-call]  # has no types
        exporter = urllib.parse.urlsplit(exporter_url(node)).netloc
        until(lambda: running.query(f'up{{instance="{exporter}"}} == 1') != [], "read the node")
        yield running


@contextmanager
def running_prometheus(config: Path, folder: Path) -> Iterator[Prometheus]:
    """Run Prometheus with a file of settings as it is, on a free port, until the end."""
    program = installed("prometheus", "no series went through it")
    port = free_port()
    command = [
        program,
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'series'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    log = folder / "prometheus.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        running = Prometheus(port)
        until(
            lambda: process.poll() is not None or running.is_ready(),
            "start",
        )
        assert process.poll() is None, log.read_text()
        yield running
    finally:
        process.terminate()
        process.wait()


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait until it holds."""
    deadline_s = time.monotonic() + ANSWERS_WITHIN_S
    while not holds():
        assert time.monotonic() < deadline_s, f"Prometheus did not {what}"
        time.sleep(0.1)
