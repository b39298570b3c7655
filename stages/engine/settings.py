"""What an engine is built from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

SPARE_SLOTS = 1
"""Rows that vLLM has beyond the sessions: an aborted request leaves its row one step later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """One engine's model, memory and limits.

    ValueError says which of them do not fit each other.
    """

    model: Path
    """Folder with config.json."""
    tokenizer: Path
    """Folder with the tokenizer's files; vLLM insists on one for models with embeddings."""
    dtype: str
    """`bfloat16` on a GPU, `float32` on a CPU."""
    max_model_len: int
    """Positions that one request may ever have."""
    session_tokens: int
    """Positions that are reserved for each session, at most `max_model_len`."""
    max_sessions: int
    """Sessions that may be open at once, below `max_num_seqs`."""
    max_in_flight: int
    """Segments that may be inside the engine at once."""
    max_num_seqs: int
    max_num_batched_tokens: int
    """Positions of one step; it bounds how long a rebuild holds up the others."""
    stuck_after_s: float = 30.0
    """A segment inside without any output for so long means that the engine is stuck."""
    kv_cache_memory_bytes: int | None = None
    """Memory for keys and values; None takes it from `gpu_memory_utilization`."""
    gpu_memory_utilization: float | None = None
    """Share of the GPU's memory, between 0 and 1, that the engine may take in all."""
    block_size: int | None = None
    """Positions in one block of memory; None is vLLM's choice."""
    enforce_eager: bool = False
    cudagraph_mode: str | None = None
    """None is vLLM's choice; `FULL` is several times faster than it for short segments."""
    load_format: str = "auto"
    seed: int = 0
    enable_prefix_caching: bool = False
    max_item_rows: int = 512
    """Longer embeddings are fed as several items, each of which must fit into one step."""
    placeholder_ids: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """By modality: the token id that stands where its rows go."""
    logits_processors: tuple[str, ...] = ()
    """Fully qualified names of classes for the runner that vLLM will use."""
    worker_extension_cls: str = ""
    reports_to_ray: bool = True
    """vLLM's own metrics go out through Ray's exporter, where this process is one of Ray's."""
    hf_overrides: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    more_engine_args: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Passed on to vLLM as they are."""

    def __post_init__(self) -> None:
        counts = ("session_tokens", "max_sessions", "max_in_flight", "max_num_seqs")
        for name in (*counts, "max_num_batched_tokens", "max_item_rows"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        if self.stuck_after_s <= 0:
            raise ValueError("stuck_after_s must be above 0")
        if self.session_tokens > self.max_model_len:
            raise ValueError("session_tokens must not be above max_model_len")
        if self.max_sessions + SPARE_SLOTS > self.max_num_seqs:
            raise ValueError(f"max_num_seqs must be max_sessions + {SPARE_SLOTS} at least")
        if self.max_item_rows > self.max_num_batched_tokens:
            raise ValueError("max_item_rows must not be above max_num_batched_tokens")
