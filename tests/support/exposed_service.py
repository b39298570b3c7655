"""A Serve instance that would listen on every address, with its proxies off so that it does not.

Prints whether a replica in it believes that only this machine can reach the service. A program of
its own, because a process has one Serve instance, and that cannot change its address.
"""

import sys
import tempfile
from collections.abc import Callable

import ray
from ray import serve

from serve_app.access.exposure import listens_on_loopback


class Probe:
    """Asks where a gateway would."""

    def __init__(self) -> None:
        self._answer = listens_on_loopback()

    async def __call__(self) -> bool:
        """Return what it was told."""
        return self._answer


def main(host: str) -> None:
    """Deploy the probe on an instance for `host`, and print its answer."""
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp") as folder:
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=80 * 2**20,
            log_to_driver=False,
            _temp_dir=folder,
        )
        try:
            serve.start(http_options={"host": host}, proxy_location="Disabled")
            handle = serve.run(serve.deployment()(Probe).bind(), name="probe")
            print(f"loopback: {handle.remote().result()}")  # noqa: T201 - read by the test
        finally:
            stop: Callable[[], None] = serve.shutdown  # has no annotations
            stop()
            ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
