"""From a segment's outputs to its timing."""

from collections.abc import Sequence

from stages.engine.backend import Output
from stages.engine.values import SegmentTiming

MS = 1000.0


def segment_timing(*, arrived_s: float, fed_s: float, outputs: Sequence[Output]) -> SegmentTiming:
    """Return the timing of a segment that came at `arrived_s` and was fed at `fed_s`.

    Tokens that come together share the time since the output before them. Those that come with
    the first have no such time: nobody saw when they were made, so they have no entry.
    """
    itls_ms: list[float] = []
    first_s = before_s = None
    for output in outputs:
        count = len(output.token_ids)
        if not count:
            continue
        if before_s is None:
            first_s = output.at_s
        else:
            itls_ms.extend([(output.at_s - before_s) * MS / count] * count)
        before_s = output.at_s
    return SegmentTiming(
        queued_ms=(fed_s - arrived_s) * MS,
        ttft_ms=0.0 if first_s is None else (first_s - fed_s) * MS,
        itls_ms=tuple(itls_ms),
        generated_tokens=sum(len(output.token_ids) for output in outputs),
    )
