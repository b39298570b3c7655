"""Where a web page comes from and which host it asks, as a browser says in `Origin` and `Host`.

Whoever runs a page can have its name lead to the visitor's own machine (DNS rebinding). To the
browser that is the page's own server; only the name of the host gives it away.
"""

import ipaddress
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

_USUAL_PORTS: Final = {"http": 80, "https": 443}


class PageOrigins:
    """The origins that are allowed, besides the service's own."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self._allowed = frozenset(origin.rstrip("/") for origin in allowed)
        self._hosts = frozenset(map(_host_name, self._allowed)) - {""}

    def may_connect(self, origin: str, host: str) -> bool:
        """Whether a page may talk to the service: it is of this machine, or asks its own host."""
        if origin.rstrip("/") in self._allowed:
            return True
        asked_from = _host_name(origin)
        return asked_from != "" and (
            _is_loopback(asked_from) or asked_from == _host_name(f"//{host}")
        )

    def may_operate(self, origin: str, host: str) -> bool:
        """Whether a page may change what all have: it was loaded from this very host and port."""
        if origin.rstrip("/") in self._allowed:
            return True
        scheme = origin.partition("://")[0].lower()
        asked_from = _place(origin)
        return asked_from is not None and asked_from == _place(f"{scheme}://{host}")

    def is_known_host(self, host: str) -> bool:
        """Whether a request asks for this machine by a name that no stranger can give it."""
        asked = _host_name(f"//{host}")
        return _is_loopback(asked) or asked in self._hosts


def _host_name(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _place(url: str) -> tuple[str, int] | None:
    """Return host and port; None where one of them is not known."""
    try:
        parts = urlsplit(url)
        port = parts.port or _USUAL_PORTS.get(parts.scheme)
    except ValueError:
        return None
    return None if not parts.hostname or port is None else (parts.hostname, port)


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
