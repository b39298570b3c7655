"""A tracer whose spans stay in this process, read as a collector would."""

from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler

from serve_app.clock import Clock, MonotonicClock
from serve_app.tracing.otel import OtelTracer
from tests.support.otlp_receiver import SpanSeen, spans_in

WALL_NS = 1_790_000_000_000_000_000
"""What the wall clock shows, always."""


class KeptSpans(SpanExporter):
    """Keeps every span that has ended."""

    def __init__(self) -> None:
        self.spans: list[SpanSeen] = []
        self.is_closed = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Keep them, as they would have come over the wire."""
        self.spans += spans_in(encode_spans(spans).SerializeToString())
        return SpanExportResult.SUCCESS

    def tracer(
        self, clock: Clock | None = None, sampler: Sampler = ALWAYS_ON, wall_ns: int = WALL_NS
    ) -> OtelTracer:
        """Return a tracer of one process."""
        provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self))

        def close() -> None:
            self.is_closed = True

        return OtelTracer(
            provider.get_tracer("test"),
            clock or MonotonicClock(),
            close=close,
            wall_ns=lambda: wall_ns,
        )

    def named(self, name: str) -> list[SpanSeen]:
        """Return the spans of a name, in the order in which they ended."""
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> SpanSeen:
        """Return the only span of a name."""
        (span,) = self.named(name)
        return span
