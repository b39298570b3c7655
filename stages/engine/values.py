"""What goes into the engine and what comes out of it.

A *segment* is what a session's request is given at once: some input, then sampling until a stop
token or a number of tokens. The last token that is sampled is not in the engine's memory (its keys
and values were never computed), so whoever wants it there puts it first into the next segment.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from session.ids import RequestId
from stages.contract import TokenMemory

if TYPE_CHECKING:  # these values are also read where torch is not installed
    import torch

Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ids:
    """Token ids to embed and feed; each takes one position."""

    ids: Tokens

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True, eq=False)
class Embeddings:
    """Rows that were computed outside of the engine; each takes one position."""

    modality: str
    """What the model class calls such rows: `audio` or `image`."""
    rows: "torch.Tensor" = field(repr=False)
    """[n, hidden] on the CPU, contiguous, in the model's dtype; not to be written to."""

    def __len__(self) -> int:
        return len(self.rows)


Piece = Ids | Embeddings
Pieces = tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a segment's tokens are chosen. A temperature of 0 takes the likeliest."""

    max_tokens: int
    """At least 1: a segment always samples."""
    stop_token_ids: Tokens = ()
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    """0 is no limit."""
    repetition_penalty: float = 1.0
    seed: int | None = None
    extra_args: Mapping[str, Any] | None = None
    """Plain values that reach the model's own logits processor."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One turn of a session's request."""

    request_id: RequestId
    pieces: Pieces
    sampling: Sampling
    deadline_s: float
    """On the engine's clock; which of the waiting segments goes in first."""


class StopReason(Enum):
    """Why a segment ended."""

    STOP_TOKEN = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class SegmentTiming:
    """How long one segment took. All of it is the segment's own, nothing is cumulative."""

    queued_ms: float
    """At the door, before the engine was asked."""
    ttft_ms: float
    """From the engine's being asked to the first token."""
    itls_ms: tuple[float, ...]
    """Between one token and the next."""
    generated_tokens: int

    @property
    def total_ms(self) -> float:
        """From the engine's being asked to the last token."""
        return self.ttft_ms + sum(self.itls_ms)

    @property
    def tpot_ms(self) -> float:
        """Return the mean time of a token after the first; 0 if there was one alone."""
        return sum(self.itls_ms) / len(self.itls_ms) if self.itls_ms else 0.0


@dataclass(frozen=True, slots=True)
class SegmentDone:
    """What a segment sampled."""

    request_id: RequestId
    token_ids: Tokens
    """All that was sampled; the last of it is not in the engine's memory."""
    stop: StopReason
    timing: SegmentTiming


@dataclass(frozen=True, slots=True)
class EngineCapacity:
    """What the engine has left."""

    max_sessions: int
    open_sessions: int
    kv_tokens: int
    """Positions that the whole engine can remember."""
    kv_tokens_reserved: int
    kv_tokens_used: int
    """Positions that the open sessions hold now."""

    @property
    def tokens(self) -> TokenMemory:
        """The memory alone."""
        return TokenMemory(self.kv_tokens_used, self.kv_tokens_reserved, self.kv_tokens)
