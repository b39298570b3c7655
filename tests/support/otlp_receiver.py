"""What takes spans over OTLP/HTTP on this machine, as a collector does, for tests to read."""

import asyncio
import gzip
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

WAIT_S = 100.0
"""Only a test that has gone wrong ever waits so long."""
Values = dict[str, str | int | float | bool]


@dataclass(frozen=True)
class Note:
    """Something that happened within a span."""

    name: str
    at_ns: int
    values: Values


@dataclass(frozen=True)
class SpanSeen:
    """One span as it came."""

    name: str
    trace: bytes
    id: bytes
    parent: bytes
    began_ns: int
    ended_ns: int
    values: Values
    notes: tuple[Note, ...]
    has_failed: bool
    said: str
    """The status' description."""
    resource: Values

    def fits_into(self, other: "SpanSeen") -> bool:
        """Whether it lies within another span."""
        return other.began_ns <= self.began_ns <= self.ended_ns <= other.ended_ns


def spans_in(body: bytes) -> list[SpanSeen]:
    """Return the spans of one request."""
    request = ExportTraceServiceRequest.FromString(body)
    return [
        _seen(span, _values(group.resource.attributes))
        for group in request.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]


@dataclass
class OtlpReceiver:
    """Keeps what it is sent."""

    port: int = 0
    spans: list[SpanSeen] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    answer: int = 200
    """Status of its answers; what it does not answer with 200 is not kept."""
    reason: str | None = None
    """Words beside the status of its answers; None: the usual ones."""
    success: int = 200
    """Status of its answer to what it has kept."""
    refused: threading.Event = field(default_factory=threading.Event)
    _came: threading.Condition = field(default_factory=threading.Condition)

    @property
    def endpoint(self) -> str:
        """Address for a deploy file."""
        return f"http://127.0.0.1:{self.port}"

    def take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        """Keep a request's spans; return the status to answer with."""
        if path != "/v1/traces":
            return 404
        if self.answer != 200:
            self.refused.set()
            return self.answer
        is_packed = headers.get("content-encoding") == "gzip"
        with self._came:
            self.spans += spans_in(gzip.decompress(body) if is_packed else body)
            self.headers.append(headers)
            self._came.notify_all()
        return self.success

    async def until(self, holds: Callable[[list[SpanSeen]], bool]) -> list[SpanSeen]:
        """Wait until that holds of what has come; return all of it."""
        return await asyncio.to_thread(self._until, holds)

    def _until(self, holds: Callable[[list[SpanSeen]], bool]) -> list[SpanSeen]:
        with self._came:
            came = self._came.wait_for(lambda: holds(self.spans), WAIT_S)
            assert came, [span.name for span in self.spans]
            return list(self.spans)


@contextmanager
def otlp_receiver() -> Iterator[OtlpReceiver]:
    """Listen on a free port of loopback."""
    receiver = OtlpReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            self.send_response(receiver.take(self.path, headers, body), receiver.reason)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _seen(span: Span, resource: Values) -> SpanSeen:
    return SpanSeen(
        name=span.name,
        trace=span.trace_id,
        id=span.span_id,
        parent=span.parent_span_id,
        began_ns=span.start_time_unix_nano,
        ended_ns=span.end_time_unix_nano,
        values=_values(span.attributes),
        notes=tuple(
            Note(event.name, event.time_unix_nano, _values(event.attributes))
            for event in span.events
        ),
        has_failed=span.status.code == Status.STATUS_CODE_ERROR,
        said=span.status.message,
        resource=resource,
    )


def _values(pairs: Iterable[KeyValue]) -> Values:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> str | int | float | bool:
    kind = value.WhichOneof("value")
    assert kind in {"string_value", "int_value", "double_value", "bool_value"}, kind
    plain: str | int | float | bool = getattr(value, kind)
    return plain
