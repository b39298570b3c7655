"""The alert rules and dashboards of deploy/, as objects of the monitoring component.

Rule 1: every file of deploy/prometheus/ that has rule groups becomes a PrometheusRule. Prometheus'
        own settings and tests of rules, which have none, stay where they are.
Rule 2: every dashboard of deploy/grafana/ becomes a ConfigMap with the label that Grafana's sidecar
        looks for.
Rule 3: where there is neither, the component is the PodMonitor alone.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

RULES: Final = Path("deploy/prometheus")
DASHBOARDS: Final = Path("deploy/grafana")
COMPONENT: Final = Path("k8s/components/monitoring")
KUSTOMIZATION: Final = str(COMPONENT / "kustomization.yaml")
WRITTEN_BY_HAND: Final = "podmonitor.yaml"

NOT_RULES: Final = frozenset({"scrape_configs", "tests"})
"""Fields of a file that is Prometheus' own settings, or a test of rules."""
MOST_BYTES: Final = 1_000_000
"""What fits into one object of Kubernetes, with some room for what goes around it."""

NOTICE: Final = "# Made by `make docs` from {source}.\n"
KUSTOMIZATION_HEAD: Final = """\
# Made by `make docs`: the files here, and those made from deploy/prometheus and deploy/grafana.
# What watches the service, for clusters with the Prometheus operator; the dashboards are for the
# sidecar of Grafana's chart.
apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component

resources:
"""


class MonitoringError(ValueError):
    """A file of deploy/ that can not become an object; the message names it."""


def objects(root: Path) -> dict[str, str]:
    """Return the text of every generated file of the component by its path."""
    made = {**dict(_rules(root)), **dict(_dashboards(root))}
    names = [WRITTEN_BY_HAND, *sorted(Path(path).name for path in made)]
    listed = "".join(f"  - {name}\n" for name in names)
    return {KUSTOMIZATION: KUSTOMIZATION_HEAD + listed, **made}


def _rules(root: Path) -> Iterator[tuple[str, str]]:
    for file in sorted([*(root / RULES).glob("*.yaml"), *(root / RULES).glob("*.yml")]):
        tree = yaml.safe_load(file.read_text())
        if not isinstance(tree, dict):
            raise MonitoringError(f"{file}: is not a mapping")
        if NOT_RULES & tree.keys():
            continue
        if tree.keys() != {"groups"}:
            raise MonitoringError(f"{file}: has neither rule groups alone nor Prometheus' settings")
        name = _name(file)
        yield (
            str(COMPONENT / f"rules_{name}.yaml"),
            _text(
                file.relative_to(root),
                {
                    "apiVersion": "monitoring.coreos.com/v1",
                    "kind": "PrometheusRule",
                    "metadata": _metadata(f"duplex-{name}", {}),
                    "spec": {"groups": tree["groups"]},
                },
            ),
        )


def _dashboards(root: Path) -> Iterator[tuple[str, str]]:
    for file in sorted((root / DASHBOARDS).glob("*.json")):
        try:
            board = json.loads(file.read_text())
        except json.JSONDecodeError as error:
            raise MonitoringError(f"{file}: {error}") from None
        # Without spaces: an object of Kubernetes has a largest size.
        text = json.dumps(board, separators=(",", ":"), ensure_ascii=False)
        if len(text.encode()) > MOST_BYTES:
            raise MonitoringError(
                f"{file}: {len(text.encode())} bytes are too many for a ConfigMap"
            )
        name = _name(file)
        yield (
            str(COMPONENT / f"dashboard_{name}.yaml"),
            _text(
                file.relative_to(root),
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": _metadata(f"duplex-dashboard-{name}", {"grafana_dashboard": "1"}),
                    "data": {file.name: text},
                },
            ),
        )


def _name(file: Path) -> str:
    return file.stem.lower().replace("_", "-")


def _metadata(name: str, labels: dict[str, str]) -> dict[str, Any]:
    return {"name": name, "labels": {"app.kubernetes.io/part-of": "duplex", **labels}}


def _text(source: Path, tree: dict[str, Any]) -> str:
    body = yaml.safe_dump(tree, sort_keys=False, width=96, allow_unicode=True)
    return NOTICE.format(source=source) + body
