"""One Ray node with Serve for a test run, and the deploy files on it as operators use them."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tools.running_service import free_port

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    # On a busy machine the proxy needs longer than Serve's five seconds to come up.
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
    # Tests wait for what Ray and Serve report; by default they do so every ten seconds.
    "RAY_metrics_report_interval_ms": "1000",
    "RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "0.5",
    "RAY_SERVE_HANDLE_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "0.5",
    # So that workers find the packages, and the actors that tests define.
    "PYTHONPATH": str(ROOT),
}
APPLICATION = "duplex"
WATCHED = {
    # A replica that is gone is missed after ten seconds by default, and one that goes looks two
    # seconds long for conversations that it does not have.
    "health_check_period_s": 1.0,
    "graceful_shutdown_wait_loop_s": 0.1,
}
"""What Serve is told about each deployment, besides what the deploy file says."""
UNHURRIED = {"config_timeout_s": 120.0}
"""Limits for clients that connect one after another before the first of them says anything."""


@dataclass(frozen=True, slots=True)
class ServeCluster:
    """A running node; its HTTP proxy listens on loopback only."""

    port: int
    folder: str
    """Where this node keeps its sockets; in the command line of its raylet."""
    deployed: list[dict[str, Any]] = field(default_factory=list)
    """The deploy file of the application that is there, with its values replaced; or nothing."""

    @property
    def address(self) -> str:
        """Host and port of the proxy."""
        return f"127.0.0.1:{self.port}"

    def deploy(
        self,
        file: str,
        args: Mapping[str, Any] | None = None,
        replicas: Mapping[str, int] | None = None,
        scaling: Mapping[str, Mapping[str, Any]] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Deploy a file of deploy/ with some of its values replaced, and wait until it runs.

        What is deployed already stays as it is, so a module that ends may leave it to the next.
        `scaling` is the autoscaling_config of a deployment, instead of a number of replicas, and
        `environment` what the application's processes find set besides.
        """
        # Serve has no public call for what `serve run FILE` does.
        from ray.serve.context import _get_global_client  # noqa: PLC0415 - needs the environment
        from ray.serve.schema import ServeDeploySchema  # noqa: PLC0415

        tree = yaml.safe_load((ROOT / "deploy" / file).read_text())
        own = tree["applications"][0].setdefault("args", {})
        for name, value in (args or {}).items():
            own[name] = {**own.get(name, {}), **value} if isinstance(value, dict) else value
        for deployment in tree["applications"][0].get("deployments", []):
            deployment.update(WATCHED)
            wanted = (replicas or {}).get(deployment["name"])
            if wanted is not None:
                deployment["num_replicas"] = wanted
            config = (scaling or {}).get(deployment["name"])
            if config is not None:
                del deployment["num_replicas"]
                deployment["autoscaling_config"] = dict(config)
        if environment:
            tree["applications"][0]["runtime_env"] = {"env_vars": dict(environment)}
        tree["http_options"]["port"] = self.port
        if self.deployed != [tree]:
            self.delete()
            client = _get_global_client()
            assert client is not None
            client.deploy_apps(ServeDeploySchema.model_validate(tree))
            self.deployed.append(tree)
        self._wait_until_it_runs()

    def _wait_until_it_runs(self) -> None:
        """Wait as long as it takes on a busy machine; the test's own time limit is the bound."""
        from ray import serve  # noqa: PLC0415 - needs the environment

        while (app := serve.status().applications.get(APPLICATION)) is None or (
            app.status != "RUNNING"
        ):
            if app is not None and app.status == "DEPLOY_FAILED":
                raise RuntimeError(app.message)
            time.sleep(0.1)

    def stage(self, name: str) -> Any:
        """Return the handle of a deployment."""
        from ray import serve  # noqa: PLC0415 - needs the environment

        return serve.get_deployment_handle(name, APPLICATION)

    def until_free(self) -> None:
        """Wait until no session is held: a client that hangs up is gone before its slot is free."""
        while any(self._sessions_held(name) != 0 for name in ("Stage0", "Stage1")):
            time.sleep(0.05)

    def _sessions_held(self, name: str) -> int | None:
        """Return how many slots a stage has given out, or None while its engine is replaced."""
        from ray.exceptions import RayError  # noqa: PLC0415 - needs the environment
        from ray.serve.exceptions import RayServeException  # noqa: PLC0415 - the same

        try:
            held: int = self.stage(name).sessions_held.remote().result(timeout_s=10)
        except (RayError, RayServeException, TimeoutError):
            return None
        return held

    def worker(self, title: str) -> int:
        """Return the process of a worker of this node, by the title Ray gives it.

        One that is being replaced, or that its application has left behind, may still be going.
        """
        while len(found := self._workers(title)) != 1:
            time.sleep(0.1)
        return found[0].pid

    def _workers(self, title: str) -> list["Process"]:
        every = _processes()
        parents = {process.pid for process in every if self.folder in process.command}
        return [
            process
            for process in every
            if process.command.startswith(f"ray::{title}") and process.parent in parents
        ]

    def delete(self) -> None:
        """Take the application away."""
        from ray import serve  # noqa: PLC0415 - needs the environment

        if self.deployed:
            serve.delete(APPLICATION)
            self.deployed.clear()


@dataclass(frozen=True, slots=True)
class Process:
    """A process of this machine."""

    pid: int
    parent: int
    command: str


def descendants(pid: int) -> list[Process]:
    """Return the children of a process, their children, and so on."""
    every = _processes()
    found: list[Process] = []
    parents = {pid}
    while children := [one for one in every if one.parent in parents and one not in found]:
        found += children
        parents = {one.pid for one in children}
    return found


def is_alive(process: Process) -> bool:
    """Whether it is there, and not just a name that its parent has not read."""
    return any(one.pid == process.pid and "<defunct>" not in one.command for one in _processes())


def _processes() -> list[Process]:
    listing = subprocess.run(
        ["ps", "-eww", "-o", "pid=,ppid=,args="], check=True, capture_output=True, text=True
    )
    rows = (line.split(None, 2) for line in listing.stdout.splitlines())
    return [Process(int(row[0]), int(row[1]), row[2]) for row in rows if len(row) == 3]


@contextmanager
def serve_cluster() -> Iterator[ServeCluster]:
    """Start Ray and Serve, and stop both at the end."""
    os.environ.update(ENVIRONMENT)
    # Ray reads its environment when it is imported.
    import ray  # noqa: PLC0415
    from ray import serve  # noqa: PLC0415

    # Short, because sockets lie under it and their paths have a limit.
    folder = tempfile.mkdtemp(prefix="r", dir="/tmp")
    ray.init(
        num_cpus=8,
        include_dashboard=False,
        object_store_memory=80 * 2**20,
        log_to_driver=False,
        _temp_dir=folder,
    )
    try:
        port = free_port()
        serve.start(
            http_options={"host": "127.0.0.1", "port": port},
            proxy_location="HeadOnly",
            logging_config={"enable_access_log": False},
        )
        yield ServeCluster(port, folder)
    finally:
        stop: Callable[[], None] = serve.shutdown  # has no annotations
        stop()
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
