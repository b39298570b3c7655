"""Builds the application: the one place where deployments are bound to each other.

`serve run deploy/duplex.yaml` calls `build_app` with the `args` of the file.
"""

import logging
import os
from typing import Any, Final

from ray import serve

from serve_app.access.key_ring import check_key_file
from serve_app.gateway.gateway_replica import GatewayReplica
from serve_app.leasing.stage_plan import StagePlan
from serve_app.leasing.stage_replica import CALLS_PER_SESSION, SPARE_CALLS, StageReplica
from serve_app.settings import (
    AppArgs,
    SelectedModel,
    StageArgs,
    gateway_settings,
    read_args,
    select_model,
)

log = logging.getLogger(__name__)

MOST_SOCKETS: Final = 10_000
"""Sockets of one gateway replica, far more than there are sessions: one too many is told so."""
REPLICA_CPUS: Final = 0.1
"""Share of a CPU for a stage's replica, which only leases; its engine has its own share."""
HEALTH_CHECK_PERIOD_S: Final = 2.0
"""A dead engine is noticed within this time, and its replica replaced."""


def build_app(args: dict[str, Any]) -> serve.Application:
    """Return the application for the `args` of a deploy file; raises SettingsError.

    Raises KeyFileError where a file of keys is on this machine already, and wrong.
    """
    parsed = read_args(args)
    for file in (parsed.auth.api_keys_file, parsed.auth.admin_keys_file):
        check_key_file(file)
    selected = select_model(parsed, os.environ)
    descriptor = selected.plugin.descriptor
    log.info("model: %s (%s)", descriptor.model_id, descriptor.description)
    gateway = serve.deployment(
        name="Gateway",
        max_ongoing_requests=MOST_SOCKETS,
        ray_actor_options={"num_cpus": parsed.gateway.num_cpus},
    )(serve.ingress()(GatewayReplica))
    return gateway.bind(
        gateway_settings(parsed),
        descriptor,
        _stage("Stage0", parsed.stage0, parsed, selected),
        _stage("Stage1", parsed.stage1, parsed, selected),
    )


def _stage(name: str, own: StageArgs, args: AppArgs, selected: SelectedModel) -> serve.Application:
    limits = args.session_limits()
    plan = StagePlan(
        stage=name.lower(),
        model=selected.name,
        settings=selected.settings,
        descriptor=selected.plugin.descriptor,
        limits=limits,
        num_cpus=own.num_cpus,
        num_gpus=own.num_gpus,
        resources=own.resources,
        tracing=args.tracing.settings(),
        logs=args.logs,
    )
    deployment = serve.deployment(
        name=name,
        # A lease that does not fit is refused inside the call, so that the session is told.
        max_ongoing_requests=CALLS_PER_SESSION * limits.max_sessions + SPARE_CALLS,
        health_check_period_s=HEALTH_CHECK_PERIOD_S,
        ray_actor_options={"num_cpus": REPLICA_CPUS},
        placement_group_bundles=[{"CPU": REPLICA_CPUS}, _engine_bundle(own)],
        placement_group_strategy="STRICT_PACK",
    )(StageReplica)
    return deployment.bind(plan)


def _engine_bundle(own: StageArgs) -> dict[str, float]:
    bundle = {"CPU": own.num_cpus, **own.resources}
    if own.num_gpus:
        bundle["GPU"] = own.num_gpus
    return bundle
