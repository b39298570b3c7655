"""What may be fed to the engine, decided before it is asked: it would die of some of it."""

from collections.abc import Collection

from stages.engine.backend import BackendFacts
from stages.engine.errors import BadSegment
from stages.engine.values import Embeddings, Ids, Pieces, Segment, Tokens


class SegmentCheck:
    """The limits of one running engine."""

    def __init__(self, facts: BackendFacts, modalities: Collection[str]) -> None:
        self._facts = facts
        self._modalities = frozenset(modalities)

    def segment(self, segment: Segment) -> None:
        """Raise BadSegment if `segment` could not be fed or sampled."""
        if segment.sampling.max_tokens < 1:
            raise BadSegment("a segment samples one token at least")
        if length(segment.pieces) == 0:
            raise BadSegment("a segment feeds one position at least")
        self._ids(segment.sampling.stop_token_ids, "a stop token")
        self.pieces(segment.pieces)

    def pieces(self, pieces: Pieces) -> None:
        """Raise BadSegment if one of `pieces` could not be fed."""
        for piece in pieces:
            if isinstance(piece, Ids):
                self._ids(piece.ids, "a token")
            else:
                self._rows(piece)

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
