"""Checks what a deploy file tells Serve about the number of replicas.

Rule 1: there is one gateway: a session can not move to another one yet.
Rule 2: a conversation holds one request of each stage open as long as it lasts, so Serve counts
        conversations. The target is below `limits.max_sessions`: otherwise a full replica refuses
        conversations and no other one is started.
"""

from collections.abc import Iterator
from typing import Final

from pydantic import ValidationError
from ray.serve.config import AutoscalingConfig
from ray.serve.schema import DeploymentSchema

from serve_app.settings import Fault, faults_of

GATEWAY: Final = "Gateway"
SCALING: Final = "autoscaling_config"


def scaling_faults(path: str, deployment: DeploymentSchema) -> Iterator[Fault]:
    """Find what is wrong in itself; `path` is that of the deployment in the file."""
    scaling = deployment.autoscaling_config
    if deployment.name == GATEWAY:
        only_one = "must be 1: a session can not move to another gateway yet"
        replicas = deployment.num_replicas
        # Where the file says nothing, this is neither of the two, and one replica.
        if isinstance(replicas, int | str) and replicas != 1:
            yield Fault(f"{path}.num_replicas", only_one)
        if isinstance(scaling, dict):
            yield Fault(
                f"{path}.{SCALING}", f"must not be set, and the number of replicas {only_one}"
            )
    if not isinstance(scaling, dict):
        return
    # Serve reads these late, and passes over a field that it does not know.
    for name in scaling:
        if name not in AutoscalingConfig.model_fields:
            yield Fault(f"{path}.{SCALING}.{name}", "is not a known field")
    try:
        AutoscalingConfig.model_validate(scaling)
    except ValidationError as error:
        yield from faults_of(error, f"{path}.{SCALING}")


def target_faults(path: str, deployment: DeploymentSchema, max_sessions: int) -> Iterator[Fault]:
    """Find a target that a full replica never reaches."""
    scaling = deployment.autoscaling_config
    target = scaling.get("target_ongoing_requests") if isinstance(scaling, dict) else None
    if isinstance(target, int | float) and target >= max_sessions:
        yield Fault(
            f"{path}.{SCALING}.target_ongoing_requests",
            f"must be below limits.max_sessions, {max_sessions}: a full replica would refuse "
            "conversations and no other one would be started",
        )
