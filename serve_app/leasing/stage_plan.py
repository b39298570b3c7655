"""What one stage is deployed as: made with the application, read by its replica and its engine."""

from dataclasses import dataclass, field
from typing import Any

from serve_app.settings import LogArgs
from serve_app.tracing.settings import NO_TRACING, TracingSettings
from session.config import SessionLimits
from stages.descriptor import Descriptor


@dataclass(frozen=True, slots=True)
class StagePlan:
    """What a replica of a stage is made from."""

    stage: str
    model: str
    """Name under which the model's plugin is found."""
    settings: dict[str, Any]
    descriptor: Descriptor
    limits: SessionLimits
    num_cpus: float
    num_gpus: float
    resources: dict[str, float] = field(default_factory=dict)
    tracing: TracingSettings = NO_TRACING
    logs: LogArgs = field(default_factory=LogArgs)
