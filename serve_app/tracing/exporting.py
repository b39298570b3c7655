"""The way out of a process: spans wait in a bounded queue and go out in batches, over OTLP/HTTP.

Rule 1: whoever ends a span never waits. What finds no room, and what the endpoint does not take,
        is dropped and counted.
Rule 2: an endpoint that does not answer is told of once, and once when it answers again; with a
        status or the name of an error, never with anybody's words.
Rule 3: closing takes no longer than CLOSE_S, whatever the endpoint does.
"""

import logging
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

import requests
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, Sampler, TraceIdRatioBased

from serve_app.clock import Clock
from serve_app.metrics.definitions import SPANS_DROPPED
from serve_app.metrics.meter import Meter
from serve_app.tracing.otel import SCOPE, OtelTracer
from serve_app.tracing.settings import (
    HIDDEN,
    TracingSettings,
    endpoint_in,
    shown,
    signal_url,
)

log = logging.getLogger(__name__)

MOST_WAITING: Final = 2048
BATCH_MS: Final = 1000
"""How long spans wait for company, unless OTEL_BSP_SCHEDULE_DELAY says something else."""
CLOSE_S: Final = 1.0
NOT_POSTED: Final = "no request went out"
TAKEN: Final = 2
"""First digit of the status of what has been taken."""
FIRST_ERROR: Final = 400
_LIBRARY_LOG: Final = "opentelemetry.exporter.otlp.proto.http.trace_exporter"


class BoundedWay:
    """Counts what is on its way out, and what is dropped."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._lock = threading.Lock()
        self.waiting = 0
        self.dropped = 0

    def enter(self) -> bool:
        """Take a place; False when there is none, and the span is dropped."""
        with self._lock:
            has_place = self.waiting < MOST_WAITING
            self.waiting += has_place
            self.dropped += not has_place
        if not has_place:
            self._meter.count(SPANS_DROPPED, "no_room")
        return has_place

    def leave(self, spans: int, *, is_sent: bool) -> None:
        """A batch has been sent, or dropped."""
        with self._lock:
            self.waiting -= spans
            self.dropped += 0 if is_sent else spans
        if not is_sent:
            self._meter.count(SPANS_DROPPED, "not_sent", by=spans)


class BoundedProcessor(SpanProcessor):
    """Lets spans into the batches as long as there is room."""

    def __init__(self, way: BoundedWay, batches: SpanProcessor) -> None:
        self._way = way
        self._batches = batches

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing has to be done."""

    def on_end(self, span: ReadableSpan) -> None:
        """Let it in, or drop it."""
        if self._way.enter():
            self._batches.on_end(span)

    def shutdown(self) -> None:
        """Send the rest and stop."""
        self._batches.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Send what waits."""
        return self._batches.force_flush(timeout_millis)


class NotTakenError(Exception):
    """An answer with which nothing was taken, though the library thinks so."""


class Post(requests.Session):
    """What requests go out with: knows what became of the last one.

    To the library a redirect, which it does not follow, is as good as a 200.
    """

    def __init__(self) -> None:
        super().__init__()
        self.outcome = NOT_POSTED

    def send(self, request: requests.PreparedRequest, **how: Any) -> requests.Response:
        """Send a request; raise NotTakenError for what is neither taken nor an error."""
        try:
            response = super().send(request, **how)
        except Exception as error:
            self.outcome = type(error).__name__
            raise
        self.outcome = f"status {response.status_code}"
        if response.status_code < FIRST_ERROR and not response.status_code // 100 == TAKEN:
            raise NotTakenError
        return response


class QuietExporter(SpanExporter):
    """Passes batches on and says when that begins to fail, and when it works again."""

    def __init__(self, way: BoundedWay, inner: SpanExporter, post: Post, place: str) -> None:
        self._way = way
        self._inner = inner
        self._post = post
        self._place = place
        self._is_failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch; called by one thread."""
        result = SpanExportResult.FAILURE
        self._post.outcome = NOT_POSTED
        try:
            result = self._inner.export(spans)
        finally:
            is_sent = result is SpanExportResult.SUCCESS
            self._way.leave(len(spans), is_sent=is_sent)
            self._tell(is_sent=is_sent)
        return result

    def shutdown(self) -> None:
        """Give up what is being sent."""
        self._inner.shutdown()

    def _tell(self, *, is_sent: bool) -> None:
        if is_sent is not self._is_failing:
            return
        self._is_failing = not is_sent
        if self._is_failing:
            sentence = "traces can not be sent to %s: %s; they are dropped"
            log.warning(sentence, self._place, self._post.outcome)
        else:
            log.warning("traces are sent to %s again", self._place)


class _Silence(logging.Filter):
    """Lets nothing through: the library logs every failure, and quotes the endpoint's words."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is logged."""
        del record
        return False


_silence: Final = _Silence()


def otlp_tracer(
    settings: TracingSettings,
    part: str,
    *,
    clock: Clock,
    meter: Meter,
    environ: Mapping[str, str],
) -> tuple[OtelTracer, BoundedWay]:
    """Return what sends this process's spans to the endpoint; raises ValueError for a bad one."""
    logging.getLogger(_LIBRARY_LOG).addFilter(_silence)
    url = None if settings.endpoint is None else signal_url(settings.endpoint)
    place = shown(url or endpoint_in(environ) or HIDDEN)
    way, post = BoundedWay(meter), Post()
    exporter = QuietExporter(way, OTLPSpanExporter(endpoint=url, session=post), post, place)
    delay_ms = None if "OTEL_BSP_SCHEDULE_DELAY" in environ else BATCH_MS
    batches = BatchSpanProcessor(
        exporter, max_queue_size=MOST_WAITING, schedule_delay_millis=delay_ms
    )
    provider = TracerProvider(
        sampler=_sampler(settings), resource=_resource(part), shutdown_on_exit=False
    )
    provider.add_span_processor(BoundedProcessor(way, batches))

    def close() -> None:
        # The library would wait for half a minute.
        last = threading.Thread(target=provider.shutdown, daemon=True)
        last.start()
        last.join(CLOSE_S)
        if last.is_alive():
            exporter.shutdown()

    return OtelTracer(provider.get_tracer(SCOPE), clock, close=close), way


def _sampler(settings: TracingSettings) -> Sampler | None:
    """Return the deploy file's sampler; None: the one that the environment names."""
    if settings.sample_ratio is None:
        return None
    return ParentBased(TraceIdRatioBased(settings.sample_ratio))


def _resource(part: str) -> Resource:
    """Say which process this is; what the environment says comes first."""
    own = Resource(
        {
            "service.namespace": "duplex",
            "host.name": socket.gethostname(),
            "process.pid": os.getpid(),
        }
    )
    told = Resource.create()
    merged = own.merge(told)
    if str(told.attributes["service.name"]).startswith("unknown_service"):
        merged = merged.merge(Resource({"service.name": f"duplex-{part}"}))
    return merged
