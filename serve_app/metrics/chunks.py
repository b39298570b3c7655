"""What Stage1 makes, chunk by chunk."""

from typing import Final

from serve_app.metrics.definitions import STAGE1_AUDIO, STAGE1_BATCH, STAGE1_CHUNK, STAGE1_FACTOR
from serve_app.metrics.meter import Meter
from session.unit import OUTPUT_RATE_HZ, SpeechChunk

_PARTS: Final = ("talker", "flow", "vocoder", "waited")


def record_chunk(meter: Meter, chunk: SpeechChunk) -> None:
    """Count one chunk; one without metrics counts by its sound alone."""
    meter.count(STAGE1_AUDIO, by=chunk.samples / OUTPUT_RATE_HZ)
    metrics, factor = chunk.metrics, chunk.real_time_factor
    if metrics is None or factor is None:
        return
    took_ms = (metrics.talker_ms, metrics.flow_ms, metrics.vocoder_ms, metrics.waited_ms)
    for part, part_ms in zip(_PARTS, took_ms, strict=True):
        meter.observe(STAGE1_CHUNK, part_ms / 1000, part)
    meter.observe(STAGE1_FACTOR, factor)
    meter.observe(STAGE1_BATCH, metrics.batch)
