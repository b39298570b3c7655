"""What the deployments of a deploy file need of Ray's nodes, and whether nodes have room for it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from serve_app.app import REPLICA_CPUS
from serve_app.settings import AppArgs, StageArgs

UNITS: Final = {"": 1, "m": 0.001, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "M": 10**6, "G": 10**9}


@dataclass(frozen=True, slots=True)
class Need:
    """What has to find room on one node."""

    name: str
    cpus: float
    gpus: float


def quantity(text: Any) -> float:
    """Return a quantity in Kubernetes' notation as a number."""
    found = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", str(text))
    assert found is not None, text
    return float(found[1]) * UNITS[found[2]]


def needs(args: AppArgs, replicas: dict[str, int]) -> Iterator[Need]:
    """Yield one need for each replica; a stage's replica and its engine stay together."""
    yield from [Need("Gateway", args.gateway.num_cpus, 0.0)] * replicas["Gateway"]
    for name, own in (("Stage0", args.stage0), ("Stage1", args.stage1)):
        yield from [_of_stage(name, own)] * replicas[name]


def _of_stage(name: str, own: StageArgs) -> Need:
    return Need(name, REPLICA_CPUS + own.num_cpus, own.num_gpus)


def without_room(needed: list[Need], nodes: int, cpus: float, gpus: float) -> list[Need]:
    """Return what finds no room, the largest first, on so many nodes of this size."""
    free = [[cpus, gpus] for _ in range(nodes)]
    left = []
    for need in sorted(needed, key=lambda one: (one.gpus, one.cpus), reverse=True):
        # A little is allowed for sums of fractions.
        fits = [n for n in free if n[0] + 1e-6 >= need.cpus and n[1] + 1e-6 >= need.gpus]
        if fits:
            fits[0][0] -= need.cpus
            fits[0][1] -= need.gpus
        else:
            left.append(need)
    return left
