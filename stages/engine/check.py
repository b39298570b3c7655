"""What may be fed to the engine, decided before it is asked: it would die of some of it."""

import math
from collections.abc import Collection
from typing import Final

from stages.engine.backend import BackendFacts
from stages.engine.errors import BadSegment
from stages.engine.values import Embeddings, Ids, Pieces, Sampling, Segment, Tokens

MAX_SEED: Final = 2**63 - 1


class SegmentCheck:
    """The limits of one running engine."""

    def __init__(self, facts: BackendFacts, modalities: Collection[str]) -> None:
        self._facts = facts
        self._modalities = frozenset(modalities)

    def segment(self, segment: Segment) -> None:
        """Raise BadSegment if `segment` could not be fed or sampled."""
        if length(segment.pieces) == 0:
            raise BadSegment("a segment feeds one position at least")
        self._sampling(segment.sampling)
        self.pieces(segment.pieces)

    def pieces(self, pieces: Pieces) -> None:
        """Raise BadSegment if one of `pieces` could not be fed."""
        for piece in pieces:
            if isinstance(piece, Ids):
                self._ids(piece.ids, "a token")
            else:
                self._rows(piece)

    def _sampling(self, sampling: Sampling) -> None:
        if sampling.max_tokens < 1:
            raise BadSegment("a segment samples one token at least")
        self._ids(sampling.stop_token_ids, "a stop token")
        # Written so that what is not a number does not pass.
        if not 0 <= sampling.temperature < math.inf:
            raise BadSegment("the temperature must be 0 or a number above it")
        if not 0 < sampling.top_p <= 1:
            raise BadSegment("top_p must be above 0 and at most 1")
        if sampling.top_k < 0:
            raise BadSegment("top_k must be 0 or a number above it")
        if not 0 < sampling.repetition_penalty < math.inf:
            raise BadSegment("the repetition penalty must be above 0")
        if sampling.seed is not None and not 0 <= sampling.seed <= MAX_SEED:
            raise BadSegment(f"a seed is between 0 and {MAX_SEED}")

    def _ids(self, ids: Tokens, what: str) -> None:
        if ids and not (min(ids) >= 0 and max(ids) < self._facts.vocab_size):
            raise BadSegment(f"{what} is not in the vocabulary of {self._facts.vocab_size}")

    def _rows(self, piece: Embeddings) -> None:
        rows, facts = piece.rows, self._facts
        if piece.modality not in self._modalities:
            raise BadSegment(f"the model has no embeddings called {piece.modality}")
        if rows.ndim != 2 or rows.shape[0] < 1 or rows.shape[1] != facts.hidden_size:
            raise BadSegment(
                f"embeddings must be [n, {facts.hidden_size}], these are {list(rows.shape)}"
            )
        if rows.dtype != facts.dtype or rows.device.type != "cpu" or not rows.is_contiguous():
            raise BadSegment(
                f"embeddings must be contiguous {facts.dtype} on the CPU, "
                f"these are {rows.dtype} on {rows.device.type}"
            )
        if not bool(rows.isfinite().all()):
            raise BadSegment("embeddings must be finite")


def length(pieces: Pieces) -> int:
    """Return how many positions `pieces` take."""
    return sum(len(piece) for piece in pieces)
