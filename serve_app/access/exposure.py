"""Who can reach the service: the address that Serve's HTTP proxy listens on.

Beyond this machine nobody comes in without an API key. A deploy file says where Serve listens only
if it is the one that started Serve, so the running service asks Serve itself.
"""

import ipaddress
import logging

from ray.serve.context import _get_global_client
from ray.serve.exceptions import RayServeException

log = logging.getLogger(__name__)


def is_loopback(host: str | None) -> bool:
    """Whether only this machine can reach `host`. No host at all means that nothing listens."""
    if host is None or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listens_on_loopback() -> bool:
    """Whether the Serve instance that this replica belongs to is out of reach of other machines.

    False when Serve does not say: then keys are required.
    """
    try:
        # Not in Serve's public interface, which has no way to ask; the version of Ray is pinned.
        client = _get_global_client()
    except RayServeException as error:
        log.warning("Serve does not say where it listens, so API keys are required: %s", error)
        return False
    return client is not None and is_loopback(client.http_config.host)
