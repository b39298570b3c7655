"""What k8s/ takes from deploy/: as it is there, without drift, and with clear refusals."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.kube_crds import crd_folder, custom_resources
from tests.support.kustomize import OVERLAYS, ROOT, build, only
from tools.k8s.generated import generated, stale
from tools.k8s.monitoring import KUSTOMIZATION, MOST_BYTES, MonitoringError, objects
from tools.k8s.serve_config import ChangeError, merged

ALERTS = {"groups": [{"name": "g", "rules": [{"alert": "Late", "expr": "up == 0", "for": "5m"}]}]}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Copy what the generator reads, without rules and dashboards."""
    for folder in ("k8s", "deploy"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    for folder in ("prometheus", "grafana"):
        shutil.rmtree(tmp_path / "deploy" / folder, ignore_errors=True)
    return tmp_path


def put(root: Path, path: str, content: Any) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content))


def write(root: Path) -> None:
    for path, text in generated(root).items():
        (root / path).write_text(text)
    for path in stale(root):
        (root / path).unlink()


# --- in this repository ------------------------------------------------------------------------


@pytest.mark.parametrize("path", generated(ROOT))
def test_a_generated_file_is_up_to_date(path: str) -> None:
    assert (ROOT / path).read_text() == generated(ROOT)[path], "run `make docs`"


def test_nothing_is_left_of_former_files() -> None:
    assert stale(ROOT) == []


def test_every_overlay_has_its_deploy_file() -> None:
    made = [path for path in generated(ROOT) if path.endswith("serve_config.yaml")]
    assert made == [f"k8s/overlays/{name}/serve_config.yaml" for name in OVERLAYS]
    folders = {folder.name for folder in (ROOT / "k8s" / "overlays").iterdir()}
    assert folders == set(OVERLAYS)


# --- the deploy file ---------------------------------------------------------------------------


def test_a_change_of_the_deploy_file_reaches_the_overlay(root: Path) -> None:
    file = root / "deploy" / "duplex.yaml"
    file.write_text(file.read_text().replace("idle_ttl_s: 300", "idle_ttl_s: 123"))
    changed = [path for path, text in generated(root).items() if text != (root / path).read_text()]
    assert "k8s/overlays/cpu-trial/serve_config.yaml" in changed
    write(root)
    manifests = build(root / "k8s" / "overlays" / "cpu-trial")
    assert "idle_ttl_s: 123" in only("RayService", manifests)["spec"]["serveConfigV2"]


def test_changes_are_merged_by_name_and_null_removes() -> None:
    tree = {"a": {"b": 1, "c": 2}, "l": [{"name": "x", "n": 1}, {"name": "y"}], "k": [1, 2]}
    changes = {"a": {"b": None, "d": 3}, "l": [{"name": "x", "n": 5}], "k": [3]}
    assert merged(tree, changes) == {
        "a": {"c": 2, "d": 3},
        "l": [{"name": "x", "n": 5}, {"name": "y"}],
        "k": [3],
    }
    assert tree["a"] == {"b": 1, "c": 2}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"a": {"z": None}}, "a.z: can not be removed"),
        ({"l": [{"name": "z"}]}, "l: the deploy file has none of the name z"),
        ({"l": [{"name": "x", "m": None}]}, "l.x.m: can not be removed"),
    ],
)
def test_a_change_that_fits_nothing_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ChangeError, match=words):
        merged({"a": {"b": 1}, "l": [{"name": "x"}]}, changes)


# --- rules and dashboards ----------------------------------------------------------------------


def test_without_rules_and_dashboards_the_pod_monitor_is_alone(root: Path) -> None:
    made = objects(root)
    assert list(made) == [KUSTOMIZATION]
    assert yaml.safe_load(made[KUSTOMIZATION])["resources"] == ["podmonitor.yaml"]


def test_rules_and_dashboards_come_along_as_they_are(root: Path) -> None:
    board = {"title": "Übersicht", "uid": "overview", "panels": [{"expr": 'up{job="duplex"}'}]}
    put(root, "deploy/prometheus/alerts.yaml", yaml.safe_dump(ALERTS))
    put(root, "deploy/prometheus/recording.yml", yaml.safe_dump(ALERTS))
    put(root, "deploy/prometheus/prometheus.yaml", "scrape_configs: []\n")
    put(root, "deploy/prometheus/alerts_test.yaml", "rule_files: [alerts.yaml]\ntests: []\n")
    put(root, "deploy/grafana/over_view.json", board)
    write(root)
    manifests = build(root / "k8s" / "overlays" / "one-gpu")
    rules = [m for m in manifests if m["kind"] == "PrometheusRule"]
    assert {m["metadata"]["name"] for m in rules} == {"duplex-alerts", "duplex-recording"}
    assert [m["spec"] for m in rules] == [ALERTS, ALERTS]
    (config,) = [m for m in manifests if "grafana_dashboard" in m["metadata"].get("labels", {})]
    assert config["metadata"]["name"] == "duplex-dashboard-over-view"
    assert json.loads(config["data"]["over_view.json"]) == board
    crds = custom_resources(crd_folder())
    assert [fault for rule in rules for fault in crds.faults(rule)] == []


def test_what_has_lost_its_source_goes(root: Path) -> None:
    put(root, "deploy/grafana/a.json", {"title": "a"})
    write(root)
    made = root / "k8s/components/monitoring/dashboard_a.yaml"
    assert made.exists()
    (root / "deploy/grafana/a.json").unlink()
    write(root)
    assert not made.exists()
    assert (root / "k8s/components/monitoring/podmonitor.yaml").exists()


@pytest.mark.parametrize(
    ("path", "content", "words"),
    [
        ("deploy/prometheus/a.yaml", "group: []\n", "has neither rule groups"),
        ("deploy/prometheus/a.yaml", "- 1\n", "is not a mapping"),
        ("deploy/grafana/a.json", "{", "a.json: "),
        ("deploy/grafana/a.json", {"title": "x" * MOST_BYTES}, "too many for a ConfigMap"),
    ],
)
def test_a_file_that_can_not_be_an_object_is_refused(
    path: str, content: Any, words: str, root: Path
) -> None:
    put(root, path, content)
    with pytest.raises(MonitoringError, match=words):
        objects(root)
