"""A process for an engine that lives in this one."""

from collections.abc import Callable

from serve_app.clock import Clock
from serve_app.leasing.engine import EngineProcess
from serve_app.metrics.meter import NO_METER, Meter
from serve_app.tracing.tracer import NO_TRACER, Tracer


def engine_process(
    clock: Clock,
    *,
    meter: Meter = NO_METER,
    tracer: Tracer = NO_TRACER,
    ends: list[str] | None = None,
    settle: Callable[[], None] = lambda: None,
) -> EngineProcess:
    """Return it; in `ends` stands why it would have ended."""
    reasons = [] if ends is None else ends
    return EngineProcess(clock, meter, tracer, reasons.append, settle)
