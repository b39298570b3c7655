"""One call at a stage, from its door to its end, as a span of the unit's trace."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from serve_app.clock import Clock
from serve_app.tracing.tracer import Span, TraceParent, Tracer, Values
from session.errors import DuplexError
from session.fence import Fence
from session.unit import OUTPUT_RATE_HZ, SpeechChunk, StageTime, UnitResult, samples_to_ms


class TracedCall:
    """A context manager around the call; does nothing where the unit is not traced."""

    def __init__(self, span: Span | None, clock: Clock, holds: Callable[[], bool]) -> None:
        self._span = span
        self._clock = clock
        self._began_s = clock.now()
        self._holds = holds
        self._chunks = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._span is None:
            return
        if isinstance(error, asyncio.CancelledError | GeneratorExit) or not self._holds():
            self._span.set({"duplex.cancelled": True})
            error = None
        failed = error if isinstance(error, DuplexError) else None
        self._span.end(at_s=self._clock.now(), error=failed)

    def answered(self, result: UnitResult) -> None:
        """Stage0 has an answer."""
        if self._span is None:
            return
        self._span.set({"duplex.decision": result.decision.value})
        told = result.metrics
        if told is not None:
            self._span.set({"duplex.tokens": told.generated_tokens, "duplex.ttft_ms": told.ttft_ms})
        self._took(result.time)

    def made(self, chunk: SpeechChunk) -> None:
        """Stage1 has a chunk."""
        if self._span is None:
            return
        if not self._chunks:
            self._took(chunk.time)
        self._chunks += 1
        values: dict[str, int | float] = {
            "duplex.chunk": self._chunks,
            "duplex.audio_ms": samples_to_ms(chunk.samples, OUTPUT_RATE_HZ),
        }
        if chunk.metrics is not None:
            values |= {
                "duplex.talker_ms": chunk.metrics.talker_ms,
                "duplex.flow_ms": chunk.metrics.flow_ms,
                "duplex.vocoder_ms": chunk.metrics.vocoder_ms,
                "duplex.waited_ms": chunk.metrics.waited_ms,
                "duplex.batch": chunk.metrics.batch,
            }
        self._span.note("chunk", at_s=self._clock.now(), values=values)
        self._span.set({"duplex.chunks": self._chunks})

    def _took(self, time: StageTime | None) -> None:
        """Show the time until now in two parts; what was repeated took it the first time."""
        if self._span is None or time is None:
            return
        now_s = self._clock.now()
        entered_s = min(self._began_s + time.queue_s, now_s)
        queue = self._span.child("queue", at_s=self._began_s)
        queue.end(at_s=entered_s)
        compute = self._span.child("compute", at_s=entered_s)
        compute.end(at_s=min(entered_s + time.compute_s, now_s))


def traced_call(
    tracer: Tracer,
    name: str,
    parent: TraceParent | None,
    *,
    fence: Fence,
    seq: int,
    clock: Clock,
    holds: Callable[[Fence], bool],
) -> TracedCall:
    """Go on with a unit's trace at a stage; `holds` says whether calls of a fence are let in."""
    span = None
    if parent is not None:
        values: Values = {
            "session.id": fence.session_id,
            "duplex.epoch": fence.epoch,
            "duplex.seq": seq,
        }
        span = tracer.begin(name, at_s=clock.now(), parent=parent, values=values)
    return TracedCall(span, clock, lambda: holds(fence))
