"""Where traces go, and how one learns it: from the deploy file, or from standard variables.

Rule 1: the deploy file's endpoint comes before the environment's, and reaches all processes.
Rule 2: everything else (headers, certificates, timeouts, names) OpenTelemetry reads from its own
        standard variables, in each process.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

SIGNAL_PATH: Final = "/v1/traces"
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
    return f"{endpoint!r} is no address for OTLP over HTTP: say, for example, http://127.0.0.1:4318"


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
