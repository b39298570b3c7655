"""The service's own metrics, by name, through Ray's exporter (which puts `ray_` in front).

What belongs to one model alone is not here: vLLM reports its own.
"""

from typing import Final, Protocol

from ray.util.metrics import Counter, Histogram

from session.unit import OUTPUT_RATE_HZ, SpeechChunk

_PARTS: Final = ("talker", "flow", "vocoder", "waited")
_SECONDS: Final = [0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0]
_FACTORS: Final = [0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0]
_BATCHES: Final = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]


class ChunkRecorder(Protocol):
    """Takes note of what Stage1 makes."""

    def record(self, chunk: SpeechChunk) -> None:
        """Count one chunk; one without metrics counts by its sound alone."""
        ...


class NoChunkRecorder:
    """Where nobody looks."""

    def record(self, chunk: SpeechChunk) -> None:
        """Do nothing."""


class RayChunkRecorder:
    """Counts through Ray."""

    def __init__(self) -> None:
        self._audio = Counter("duplex_stage1_audio_seconds", "Sound that Stage1 has made.")
        self._time = Histogram(
            "duplex_stage1_chunk_seconds",
            "Time that one chunk took, by part: talker, flow, vocoder, waited.",
            boundaries=_SECONDS,
            tag_keys=("part",),
        )
        self._factor = Histogram(
            "duplex_stage1_real_time_factor",
            "Time that a chunk took, by the time it lasts: above 1 playback runs dry.",
            boundaries=_FACTORS,
        )
        self._batch = Histogram(
            "duplex_stage1_batch_sessions",
            "Sessions whose sound was made together.",
            boundaries=_BATCHES,
        )

    def record(self, chunk: SpeechChunk) -> None:
        """Count one chunk."""
        if chunk.samples:
            self._audio.inc(chunk.samples / OUTPUT_RATE_HZ)
        metrics, factor = chunk.metrics, chunk.real_time_factor
        if metrics is None or factor is None:
            return
        took_ms = (metrics.talker_ms, metrics.flow_ms, metrics.vocoder_ms, metrics.waited_ms)
        for part, part_ms in zip(_PARTS, took_ms, strict=True):
            self._time.observe(part_ms / 1000, {"part": part})
        self._factor.observe(factor)
        self._batch.observe(metrics.batch)
