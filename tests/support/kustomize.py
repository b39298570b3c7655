"""What `kubectl apply -k` would apply: overlays as kubectl itself builds them.

Where kubectl is not installed, what needs it is left out, and the run says so.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

ROOT: Final = Path(__file__).parents[2]
OVERLAYS: Final = ("cpu-trial", "one-gpu", "two-gpu")
OPTIONAL: Final = ("gateway-api", "gcs-on-redis", "monitoring")
"""Components that an operator may add to any overlay, or take out."""

Manifest = dict[str, Any]


def build(folder: Path) -> list[Manifest]:
    """Return the objects of a kustomization; raises CalledProcessError."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("LEFT OUT: kubectl is not installed, so no overlay was built")
    done = subprocess.run(
        [kubectl, "kustomize", str(folder)], check=True, capture_output=True, text=True, timeout=60
    )
    return list(yaml.load_all(done.stdout, yaml.CSafeLoader))


def build_with_all(overlay: str, scratch: Path) -> list[Manifest]:
    """Return the objects of an overlay to which every optional component is added."""
    shutil.copytree(ROOT / "k8s", scratch / "k8s")
    folder = scratch / "k8s" / "overlays" / overlay
    file = folder / "kustomization.yaml"
    tree = yaml.safe_load(file.read_text())
    wanted = {f"../../components/{name}" for name in OPTIONAL}
    tree["components"] = sorted({*tree.get("components", ()), *wanted})
    file.write_text(yaml.safe_dump(tree))
    return build(folder)


def only(kind: str, manifests: list[Manifest]) -> Manifest:
    """Return the one object of a kind."""
    (found,) = [manifest for manifest in manifests if manifest["kind"] == kind]
    return found


def pod_specs(service: Manifest) -> dict[str, Manifest]:
    """Return the pod template of the head and of each worker group of a RayService, by name."""
    cluster = service["spec"]["rayClusterConfig"]
    groups = {group["groupName"]: group["template"] for group in cluster["workerGroupSpecs"]}
    return {"head": cluster["headGroupSpec"]["template"], **groups}
