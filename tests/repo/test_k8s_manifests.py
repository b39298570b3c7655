"""Every object of k8s/ is one that an API server takes; a misspelt field is not.

Custom resources are judged by their real schemas, built-in kinds by Kubernetes' own.
"""

import copy
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from tests.support.kube_crds import CustomResources, crd_folder, custom_resources
from tests.support.kube_rules import duration_s, operator_faults
from tests.support.kustomize import OVERLAYS, ROOT, Manifest, build, build_with_all, only

KUBERNETES = "1.37"
CUSTOM = {"RayService", "Gateway", "HTTPRoute", "PodMonitor", "PrometheusRule"}
BUILT_IN = {
    "ConfigMap",
    "NetworkPolicy",
    "PodDisruptionBudget",
    "Secret",
    "PersistentVolumeClaim",
}
RULES = {
    "apiVersion": "monitoring.coreos.com/v1",
    "kind": "PrometheusRule",
    "metadata": {"name": "duplex-some"},
    "spec": {"groups": [{"name": "g", "rules": [{"alert": "A", "expr": "up", "for": "5m"}]}]},
}


@pytest.fixture(scope="module")
def crds() -> CustomResources:
    """Read the schemas of custom resources."""
    return custom_resources(crd_folder())


@pytest.fixture(scope="module")
def kubernetes() -> ModuleType:
    """Import what carries the schemas of built-in kinds; it comes with dev.lock."""
    found = pytest.importorskip(
        "kubernetes_validate", reason="LEFT OUT: kubernetes-validate is not installed"
    )
    assert isinstance(found, ModuleType)
    return found


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Manifest]]:
    """Build every overlay, as it is and with every component, and read the examples."""
    built = {name: build(ROOT / "k8s" / "overlays" / name) for name in OVERLAYS}
    built |= {
        f"{name} with all": build_with_all(name, tmp_path_factory.mktemp(name)) for name in OVERLAYS
    }
    return built | {
        f"examples/{file.name}": list(yaml.safe_load_all(file.read_text()))
        for file in sorted((ROOT / "k8s" / "examples").glob("*.yaml"))
    }


def sample(kind: str, everything: dict[str, list[Manifest]]) -> Manifest:
    """Return a copy of some object of the kind."""
    if kind == "PrometheusRule":
        return copy.deepcopy(RULES)
    of_kind = [one for group in everything.values() for one in group if one["kind"] == kind]
    return copy.deepcopy(of_kind[0])


def test_only_known_kinds_are_used(everything: dict[str, list[Manifest]]) -> None:
    used = {manifest["kind"] for group in everything.values() for manifest in group}
    assert used | {"PrometheusRule"} == CUSTOM | BUILT_IN


def test_custom_resources_are_taken(
    crds: CustomResources, everything: dict[str, list[Manifest]]
) -> None:
    judged = 0
    for name, manifests in everything.items():
        for manifest in manifests:
            if manifest["kind"] in CUSTOM:
                assert crds.know(manifest), manifest["apiVersion"]
                assert crds.faults(manifest) == [], f"{name}: {manifest['kind']}"
                judged += 1
    assert judged > len(OVERLAYS) * len(CUSTOM - {"PrometheusRule"})
    assert crds.faults(RULES) == []


def test_built_in_kinds_are_taken(
    kubernetes: ModuleType, everything: dict[str, list[Manifest]]
) -> None:
    judged = 0
    for manifests in everything.values():
        for manifest in manifests:
            if manifest["kind"] in BUILT_IN:
                assert kubernetes.validate(manifest, KUBERNETES, strict=True) == KUBERNETES
                judged += 1
    assert judged > len(OVERLAYS) * 3


def test_pods_are_taken_by_kubernetes_own_schema(
    kubernetes: ModuleType, everything: dict[str, list[Manifest]]
) -> None:
    for name in OVERLAYS:
        cluster = only("RayService", everything[name])["spec"]["rayClusterConfig"]
        for group in [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]:
            pod = {"apiVersion": "v1", "kind": "Pod", **group["template"]}
            kubernetes.validate(pod, KUBERNETES, strict=True)


def test_the_operator_has_nothing_against_the_services(
    everything: dict[str, list[Manifest]],
) -> None:
    services = [
        one for group in everything.values() for one in group if one["kind"] == "RayService"
    ]
    assert len(services) == 2 * len(OVERLAYS)
    assert [fault for service in services for fault in operator_faults(service)] == []


def _misspell(manifest: Manifest, path: tuple[str | int, ...]) -> None:
    *way, last = path
    at: Any = manifest
    for step in way:
        at = at[step]
    at[f"{last}x"] = at.pop(last)


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("RayService", ("spec", "upgradeStrategy")),
        ("RayService", ("spec", "rayClusterConfig", "authOptions", "mode")),
        ("RayService", ("spec", "rayClusterConfig", "workerGroupSpecs", 0, "maxReplicas")),
        (
            "RayService",
            (
                *("spec", "rayClusterConfig", "headGroupSpec", "template", "spec", "containers", 0),
                "securityContext",
            ),
        ),
        ("RayService", ("metadata", "labels")),
        ("Gateway", ("spec", "listeners", 0, "tls")),
        ("HTTPRoute", ("spec", "rules", 0, "timeouts", "backendRequest")),
        ("PodMonitor", ("spec", "podMetricsEndpoints", 0, "interval")),
        ("PrometheusRule", ("spec", "groups", 0, "rules", 0, "for")),
    ],
)
def test_a_misspelt_field_of_a_custom_resource_is_found(
    kind: str,
    path: tuple[str | int, ...],
    crds: CustomResources,
    everything: dict[str, list[Manifest]],
) -> None:
    manifest = sample(kind, everything)
    _misspell(manifest, path)
    assert any(f"{path[-1]}x" in fault for fault in crds.faults(manifest))


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("ConfigMap", ("data",)),
        ("NetworkPolicy", ("spec", "ingress", 1, "ports", 0, "protocol")),
        ("PodDisruptionBudget", ("spec", "minAvailable")),
        ("Secret", ("stringData",)),
        ("PersistentVolumeClaim", ("spec", "accessModes")),
    ],
)
def test_a_misspelt_field_of_a_built_in_kind_is_found(
    kind: str,
    path: tuple[str | int, ...],
    kubernetes: ModuleType,
    everything: dict[str, list[Manifest]],
) -> None:
    manifest = sample(kind, everything)
    _misspell(manifest, path)
    with pytest.raises(kubernetes.ValidationError, match=f"{path[-1]}x"):
        kubernetes.validate(manifest, KUBERNETES, strict=True)


WRONG: list[tuple[str, str, Callable[[Manifest], Any]]] = [
    (
        "RayService",
        "is not of type 'integer'",
        lambda m: m["spec"]["rayClusterConfig"]["workerGroupSpecs"][0].update(maxReplicas="4"),
    ),
    (
        "RayService",
        "twice",
        lambda m: m["spec"]["rayClusterConfig"]["headGroupSpec"]["template"]["spec"]["containers"][
            0
        ]["ports"].append({"name": "again", "containerPort": 8000, "protocol": "TCP"}),
    ),
    (
        "RayService",
        "must be either 'ray.io/kuberay-operator'",
        lambda m: m["spec"].update(managedBy="me"),
    ),
    (
        "Gateway",
        "certificateRefs or options",
        lambda m: m["spec"]["listeners"][0]["tls"].pop("certificateRefs"),
    ),
    (
        "Gateway",
        "tls mode must be Terminate",
        lambda m: m["spec"]["listeners"][0]["tls"].update(mode="Passthrough"),
    ),
    (
        "Gateway",
        "Combination of port, protocol and hostname",
        lambda m: m["spec"]["listeners"].append({**m["spec"]["listeners"][0], "name": "again"}),
    ),
    (
        "HTTPRoute",
        "backendRequest timeout cannot be longer",
        lambda m: m["spec"]["rules"][0]["timeouts"].update(request="10s", backendRequest="1m"),
    ),
    (
        "HTTPRoute",
        "Must have port",
        lambda m: m["spec"]["rules"][0]["backendRefs"][0].pop("port"),
    ),
    (
        "HTTPRoute",
        "must not contain '//'",
        lambda m: m["spec"]["rules"][0]["matches"][0]["path"].update(value="//v1"),
    ),
    (
        "HTTPRoute",
        "sectionName must be unique",
        lambda m: m["spec"]["parentRefs"].append({"name": "duplex"}),
    ),
]


@pytest.mark.parametrize(("kind", "words", "spoil"), WRONG, ids=[words for _, words, _ in WRONG])
def test_what_breaks_a_rule_is_found(
    kind: str,
    words: str,
    spoil: Callable[[Manifest], Any],
    crds: CustomResources,
    everything: dict[str, list[Manifest]],
) -> None:
    manifest = sample(kind, everything)
    spoil(manifest)
    assert any(words in fault for fault in crds.faults(manifest))


def test_a_rule_that_nobody_has_read_is_a_fault(
    crds: CustomResources, everything: dict[str, list[Manifest]], tmp_path: Path
) -> None:
    text = (crd_folder() / "gateway.networking.k8s.io_httproutes.yaml").read_text()
    changed = text.replace("has(self.port)", "has(self.port) || true")
    assert changed != text
    (tmp_path / "route.yaml").write_text(changed)
    faults = CustomResources(tmp_path).faults(sample("HTTPRoute", everything))
    assert [fault for fault in faults if "nobody has read" in fault]
    assert crds.faults(sample("HTTPRoute", everything)) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"type": "Newcluster"}, "Newcluster is none"),
        ({"type": "NewClusterWithIncrementalUpgrade"}, "belongs to the incremental upgrade"),
        ({"type": "NewCluster", "clusterUpgradeOptions": {}}, "belongs to the incremental"),
        (
            {
                "type": "NewClusterWithIncrementalUpgrade",
                "clusterUpgradeOptions": {"stepSizePercent": 50, "maxSurgePercent": 25},
            },
            "a step is larger",
        ),
    ],
)
def test_what_only_the_operator_refuses_is_found(
    change: Manifest, words: str, everything: dict[str, list[Manifest]]
) -> None:
    service = sample("RayService", everything)
    service["spec"]["upgradeStrategy"] = change
    assert any(words in fault for fault in operator_faults(service))


def test_durations_are_read_in_kubernetes_notation() -> None:
    assert [duration_s(text) for text in ("0s", "30s", "1m30s", "500ms", "1h")] == [
        *(0, 30, 90),
        *(0.5, 3600),
    ]
