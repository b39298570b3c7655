"""Where faults are drilled: a service on real Ray, and a Prometheus that judges it quickly."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.support.prometheus import ActiveAlert, Prometheus, prometheus
from tests.support.serve_cluster import Process, ServeCluster, is_alive, serve_cluster
from tools.dashboards.alerts import rules_text
from tools.dashboards.pace import Pace
from tools.running_service import is_ready

PACE: Final = Pace(share=1 / 20, scrape_s=1)
"""Ten minutes are half a minute. Quicker, and a window has too few looks at the event loop."""
KEY: Final = "the-drills-own-key"
SESSIONS: Final = 20
LIMITS: Final[Mapping[str, float]] = {
    "max_sessions": SESSIONS,
    "lease_ttl_s": 4.0,
    "reaper_interval_s": 1.0,
    "stage_timeout_s": 3.0,
    "disconnect_grace_s": 2.0,
}
GATEWAY: Final = "ServeReplica:duplex:Gateway"
ENGINES: Final = {"stage0": "Stage0Actor", "stage1": "Stage1Actor"}


@dataclass(frozen=True, slots=True)
class Fired:
    """An alert that a drill has seen."""

    fault: str
    alert: str
    labels: str
    after_s: float


@dataclass(slots=True)
class Site:
    """The service, its Prometheus, and what has been seen so far."""

    cluster: ServeCluster
    prometheus: Prometheus
    keys_file: Path
    fired: list[Fired] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"ws://{self.cluster.address}/v1/realtime?duplex=1"

    async def alerts(self) -> list[ActiveAlert]:
        """Return what is pending or fires."""
        return await asyncio.to_thread(self.prometheus.alerts)

    async def firing(self) -> set[str]:
        """Return what fires, as `name{labels}`."""
        return {shown(alert) for alert in await self.alerts() if alert.is_firing}

    async def until_quiet(self, *names: str) -> None:
        """Wait until none of these alerts is even pending; with no name, until none is at all."""
        while True:
            if not any(not names or alert.name in names for alert in await self.alerts()):
                return
            await asyncio.sleep(0.5)

    async def until_fires(self, fault: str, *wanted: str) -> None:
        """Wait until all of these fire, and note how long each took."""
        began_s = time.monotonic()
        left = set(wanted)
        others: set[str] = set()
        while left:
            now = await self.firing()
            for one in sorted(left & now):
                self._note(fault, one, time.monotonic() - began_s)
            others |= now - set(wanted)
            left -= now
            await asyncio.sleep(0.3)
        say(f"{fault}: besides these fired: {', '.join(sorted(others)) or 'nothing'}")

    async def worker(self, title: str) -> int:
        """Wait for the one process with this title, and return it."""
        while True:
            try:
                return await asyncio.to_thread(self.cluster.worker, title)
            except AssertionError:
                await asyncio.sleep(0.2)

    async def kill(self, title: str) -> None:
        """Kill the process with this title, and wait until it is gone."""
        pid = await self.worker(title)
        os.kill(pid, signal.SIGKILL)
        say(f"killed {title} ({pid})")
        while await asyncio.to_thread(is_alive, Process(pid, 0, "")):  # noqa: ASYNC110
            await asyncio.sleep(0.1)

    async def until_healthy(self) -> None:
        """Wait until the service says that both stages answer."""
        while not await asyncio.to_thread(is_ready, self.cluster.port):  # noqa: ASYNC110
            await asyncio.sleep(0.2)

    async def until_value(self, expr: str, holds: Callable[[float], bool]) -> None:
        """Wait until a query has one answer and this holds of it."""
        while True:
            found = await asyncio.to_thread(self.prometheus.query, expr)
            if len(found) == 1 and holds(found[0].value):
                return
            await asyncio.sleep(0.3)

    def _note(self, fault: str, one: str, after_s: float) -> None:
        name, _, labels = one.partition("{")
        self.fired.append(Fired(fault, name, labels.rstrip("}"), after_s))
        say(f"{fault}: {one} fired after {after_s:.0f} s")


def shown(alert: ActiveAlert) -> str:
    """Return an alert's name, with its labels but the severity."""
    labels = ", ".join(f"{k}={v}" for k, v in sorted(alert.labels.items()) if k != "severity")
    return f"{alert.name}{{{labels}}}" if labels else alert.name


def say(text: str) -> None:
    """Tell whoever watches the drill."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)  # noqa: T201


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process for as long as this lasts."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # Serve replaces what hangs for long
            os.kill(pid, signal.SIGCONT)


@contextmanager
def drilled_site(folder: Path) -> Iterator[Site]:
    """Start everything, and stop it at the end."""
    keys_file = folder / "keys"
    keys_file.write_text(f"{KEY}\n")
    with serve_cluster() as cluster:
        import ray  # noqa: PLC0415 - needs the environment

        from serve_app.metrics.exporters import exporter_url  # noqa: PLC0415 - imports Ray

        cluster.deploy(
            "scripted.yaml",
            {
                "model_settings": {"sentences": 1, "sentence_ms": 400},
                "limits": dict(LIMITS),
                "auth": {"api_keys_file": str(keys_file)},
            },
        )
        nodes = ray.nodes()  # type: ignore[no-untyped-call]  # has no types
        pages = [exporter_url(node) for node in nodes]
        exporters = [page.removeprefix("http://").removesuffix("/metrics") for page in pages]
        with prometheus(folder, exporters, rules=rules_text(PACE)) as judge:
            yield Site(cluster, judge, keys_file)
