"""Reads Ray's metrics exporters, one on each node."""

import asyncio
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import ray

from session.errors import StageUnavailable

TIMEOUT_S: Final = 5.0
MOST_AT_ONCE: Final = 16

ReadExporters = Callable[[], Awaitable[list[str]]]
"""Returns every node's page; raises StageUnavailable when one does not answer."""


async def read_exporters() -> list[str]:
    """Return the page of every node that lives."""
    return await asyncio.to_thread(_read_all)


def _read_all() -> list[str]:
    nodes = ray.nodes()  # type: ignore[no-untyped-call]  # has no types
    urls = [exporter_url(node) for node in nodes if node["Alive"]]
    with ThreadPoolExecutor(min(MOST_AT_ONCE, max(1, len(urls)))) as pool:
        return list(pool.map(_read, urls))


def exporter_url(node: dict[str, Any]) -> str:
    """Return where a node of `ray.nodes()` shows its metrics."""
    address = node["NodeManagerAddress"]
    host = f"[{address}]" if ":" in address else address
    return f"http://{host}:{node['MetricsExportPort']}/metrics"


def _read(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:  # a node's own address
            page: str = answer.read().decode()
    except (urllib.error.URLError, OSError) as error:
        raise StageUnavailable(f"the metrics of a node can not be read: {url}: {error}") from error
    return page
