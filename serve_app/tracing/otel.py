"""Spans of OpenTelemetry: the one module that makes them.

Rule 1: the provider is our own object and never the process's global one. Ray and vLLM set that
        when their own tracing is switched on.
Rule 2: a root and what goes on with another process's span take the wall clock once, when they
        begin; all other times in them follow from the process's own clock. So a wall clock that
        is set meanwhile turns no stretch around.
"""

from collections.abc import Callable
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from serve_app.clock import Clock, unix_now_ns
from serve_app.tracing.tracer import NO_VALUES, TraceParent, Values
from session.errors import DuplexError

SCOPE: Final = "duplex-serve"
_HEADER: Final = "traceparent"
_W3C: Final = TraceContextTextMapPropagator()


class OtelSpan:
    """Implements `serve_app.tracing.tracer.Span`."""

    def __init__(self, tracer: trace.Tracer, span: trace.Span, origin_ns: int) -> None:
        self._tracer = tracer
        self._span = span
        self._origin_ns = origin_ns

    @property
    def parent(self) -> TraceParent:
        """What to hand to another process."""
        carrier: dict[str, str] = {}
        _W3C.inject(carrier, trace.set_span_in_context(self._span, Context()))
        return TraceParent(carrier[_HEADER])

    def child(self, name: str, *, at_s: float) -> "OtelSpan":
        """Begin a stretch within this one."""
        span = self._tracer.start_span(
            name,
            trace.set_span_in_context(self._span, Context()),
            start_time=self._ns(at_s),
        )
        return OtelSpan(self._tracer, span, self._origin_ns)

    def set(self, values: Values) -> None:
        """Add to what is known of it."""
        self._span.set_attributes(values)

    def note(self, name: str, *, at_s: float, values: Values = NO_VALUES) -> None:
        """Say that something has happened."""
        self._span.add_event(name, values, self._ns(at_s))

    def end(self, *, at_s: float, error: DuplexError | None = None) -> None:
        """It is over; of an error only its kind and code are kept, since its words may quote."""
        if error is not None:
            self._span.set_attribute("error.type", type(error).__name__)
            self._span.set_status(Status(StatusCode.ERROR, error.wire_code))
        self._span.end(self._ns(at_s))

    def _ns(self, at_s: float) -> int:
        return self._origin_ns + int(at_s * 1e9)


class OtelTracer:
    """Implements `serve_app.tracing.tracer.Tracer`."""

    def __init__(
        self,
        tracer: trace.Tracer,
        clock: Clock,
        *,
        close: Callable[[], None],
        wall_ns: Callable[[], int] = unix_now_ns,
    ) -> None:
        self._tracer = tracer
        self._clock = clock
        self._close = close
        self._wall_ns = wall_ns

    def begin(
        self,
        name: str,
        *,
        at_s: float,
        parent: TraceParent | None = None,
        values: Values = NO_VALUES,
    ) -> OtelSpan | None:
        """Begin a trace, or go on with one of another process; None: it is not sampled."""
        context, kind = Context(), SpanKind.INTERNAL
        if parent is not None:
            context, kind = _W3C.extract({_HEADER: parent.text}, context), SpanKind.SERVER
        origin_ns = self._wall_ns() - int(self._clock.now() * 1e9)
        span = self._tracer.start_span(
            name,
            context,
            kind,
            attributes=values,
            start_time=origin_ns + int(at_s * 1e9),
        )
        return OtelSpan(self._tracer, span, origin_ns) if span.is_recording() else None

    def close(self) -> None:
        """Send what is left, within a second or so, and nothing from then on."""
        self._close()
