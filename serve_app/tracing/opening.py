"""Opens a process's tracer, or none."""

import logging
import os

from serve_app.clock import Clock
from serve_app.metrics.meter import Meter
from serve_app.tracing.settings import TracingSettings, endpoint_fault, endpoint_in
from serve_app.tracing.tracer import NO_TRACER, Tracer

log = logging.getLogger(__name__)


def open_tracer(settings: TracingSettings, part: str, *, clock: Clock, meter: Meter) -> Tracer:
    """Return where the spans of this process go; `part` is gateway, stage0 or stage1."""
    endpoint = settings.endpoint or endpoint_in(os.environ)
    if endpoint is None:
        return NO_TRACER
    fault = endpoint_fault(endpoint)
    if fault is not None:
        log.warning("no traces: %s", fault)
        return NO_TRACER
    # What sends them is not even imported where nobody traces.
    from serve_app.tracing.exporting import otlp_tracer  # noqa: PLC0415

    return otlp_tracer(settings, part, clock=clock, meter=meter, environ=os.environ)[0]
