"""The gateway in its Serve replica: this process's keys, and the way to the stages over Ray."""

import os
from dataclasses import replace
from typing import Any

import ray
from fastapi import FastAPI
from ray import serve
from ray.serve.handle import DeploymentHandle

from serve_app.access.exposure import listens_on_loopback
from serve_app.access.key_ring import check_key_file
from serve_app.gateway.api import build_api
from serve_app.gateway.gateway import Gateway
from serve_app.leasing.stage_client import RayStageDirectory
from serve_app.logs.process_logs import set_up
from serve_app.metrics.exporters import read_exporters
from serve_app.metrics.ray_meter import GATEWAYS, RayMeter
from serve_app.settings import (
    ADMIN_KEYS_VARIABLE,
    Fault,
    GatewaySettings,
    Place,
    SettingsError,
    keys_in,
)
from stages.descriptor import Descriptor


class GatewayReplica(Gateway):
    """One replica of the gateway. It learns here what the application builder can not know."""

    def __init__(
        self,
        settings: GatewaySettings,
        descriptor: Descriptor,
        stage0: DeploymentHandle[Any],
        stage1: DeploymentHandle[Any],
    ) -> None:
        set_up(settings.logs, "gateway")
        check_only_one(serve.get_replica_context().world_size)
        own = replace(
            settings,
            api_keys=keys_in(os.environ),
            admin_keys=keys_in(os.environ, ADMIN_KEYS_VARIABLE),
            allow_unauthenticated=listens_on_loopback(),
            place=_here(),
        )

        # A wrong line ends this process. Were its gauges there before, they would come with each
        # attempt of Serve's, and nobody would be told that there is no gateway.
        check_key_file(own.api_keys_file)
        check_key_file(own.admin_keys_file)

        async def open_directory() -> RayStageDirectory:
            return RayStageDirectory(stage0, stage1, descriptor, settings.limits)

        super().__init__(
            own,
            open_directory,
            meter=RayMeter(GATEWAYS),
            read_exporters=read_exporters,
        )

    def __serve_build_asgi_app__(self) -> FastAPI:
        """Build the routes; Serve calls this in the replica."""
        return build_api(self)


def check_only_one(replicas: int) -> None:
    """Raise SettingsError where there are to be several gateways.

    What hands a deploy file to Serve need not have checked it, and then one client in two would
    come back to a gateway that does not know its session.
    """
    if replicas != 1:
        only_one = "must be 1: a session can not move to another gateway yet"
        raise SettingsError([Fault("deployments: Gateway: num_replicas", only_one)])


def _here() -> Place:
    node: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]  # Ray's own
    return Place(replica=serve.get_replica_context().replica_id.unique_id, node=node)
