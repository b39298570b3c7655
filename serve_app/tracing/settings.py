"""Where traces go, and how one learns it: from the deploy file, or from standard variables.

Rule 1: the deploy file's endpoint comes before the environment's, and reaches all processes.
Rule 2: everything else (headers, certificates, timeouts, names) OpenTelemetry reads from its own
        standard variables, in each process.
Rule 3: an address can have a password or a token in it: only what `shown` leaves of it is said.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

SIGNAL_PATH: Final = "/v1/traces"
HIDDEN: Final = "the endpoint"
ENDPOINT_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


@dataclass(frozen=True, slots=True)
class TracingSettings:
    """What the deploy file says of traces."""

    endpoint: str | None = None
    sample_ratio: float | None = None


NO_TRACING: Final = TracingSettings()


def endpoint_fault(endpoint: str) -> str | None:
    """Return what is wrong with an endpoint, or None."""
    try:
        parts = urlsplit(endpoint)
        has_place = bool(parts.hostname) and parts.port != 0
    except ValueError:  # such as a port that is no number
        has_place = False
    if has_place and endpoint.startswith(("http://", "https://")) and not set("?#") & set(endpoint):
        return None
    return (
        f"{shown(endpoint)} is no address for OTLP over HTTP: say, for example, "
        "http://127.0.0.1:4318, without ? and #"
    )


def own_endpoint_fault(endpoint: str) -> str | None:
    """Return what is wrong with an endpoint that a deploy file names, or None."""
    if "@" in endpoint:
        return (
            "an address with a user or a password in it would be read by everybody who reads "
            "the deploy file: put a token in OTEL_EXPORTER_OTLP_TRACES_HEADERS"
        )
    return endpoint_fault(endpoint)


def shown(endpoint: str) -> str:
    """Return what may be said of an endpoint: no user, no password and no query."""
    try:
        parts = urlsplit(endpoint)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if "@" in parts.path + parts.query + parts.fragment:
        host = None  # of a password with a slash in it, too, nothing is to be seen
    if host is None:
        return HIDDEN if set("@?#") & set(endpoint) else repr(endpoint)
    name = f"[{host}]" if ":" in host else host
    place = name if port is None else f"{name}:{port}"
    return f"{parts.scheme}://{place}{parts.path}"


def signal_url(endpoint: str) -> str:
    """Return where spans are posted, for the endpoint of a deploy file."""
    base = endpoint.rstrip("/")
    return base if base.endswith(SIGNAL_PATH) else base + SIGNAL_PATH


def endpoint_in(environ: Mapping[str, str]) -> str | None:
    """Return the endpoint that the environment asks for; None where it asks for no traces."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    if environ.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none":
        return None
    traces, every = (environ.get(name) for name in ENDPOINT_VARIABLES)
    if traces:
        return traces
    return every.rstrip("/") + SIGNAL_PATH if every else None
