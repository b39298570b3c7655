"""The attachment ledger: which socket speaks for the session, and who may take its place.

Rule 1: at most one attachment is current. What any other one says counts for nothing.
Rule 2: the generation rises by one with each attachment and never falls.
Rule 3: a new token comes with each attachment. Of a token only the digest is kept.
Rule 4: the token that an attachment came with stays good until something comes over it: only then
        is it known that the client has read the new one. A broken socket is noticed late.
"""

import hashlib
import hmac
from dataclasses import dataclass

from session.errors import LocalProtocolError
from session.ids import AttachmentId


@dataclass(slots=True)
class AttachmentLedger:
    """The current attachment of a session, and the digests of the tokens that open it."""

    is_resumable: bool = False
    """Whether another socket may take the session over at all."""
    current: AttachmentId | None = None
    generation: int = 0
    detached_at_s: float | None = None
    """Since when nobody has been attached; None while somebody is."""
    _digest: bytes = b""
    _presented: bytes = b""
    """Digest of the token that the current attachment came with, until something comes over it."""

    def heeds(self, attachment: AttachmentId) -> bool:
        """Whether what `attachment` says counts."""
        return self.current is not None and attachment == self.current

    def attach_first(self, attachment: AttachmentId, *, is_resumable: bool) -> None:
        """Begin with the socket that opens the session."""
        self.current, self.generation = attachment, 1
        self.is_resumable = is_resumable

    def give_token(self, token: str) -> None:
        """From now on `token` opens the session."""
        self._digest = _digest(token)

    def is_opened_by(self, token: str) -> bool:
        """Compare in constant time with each token that is good now."""
        presented = _digest(token)
        matches = [hmac.compare_digest(presented, good) for good in (self._digest, self._presented)]
        return self.is_resumable and any(matches)

    def attach(self, attachment: AttachmentId, *, presented: str, token: str) -> None:
        """Give the session to another socket, which came with one token and gets another."""
        self.current, self.detached_at_s = attachment, None
        self.generation += 1
        self._presented = _digest(presented)
        self.give_token(token)

    def spoke(self) -> None:
        """The current attachment has read its token, or does not need it."""
        self._presented = b""

    def detach(self, *, now: float) -> None:
        """Nobody is attached any more."""
        self.current, self.detached_at_s = None, now

    def validate(self) -> None:
        """Raise LocalProtocolError unless the facts agree."""
        if self.current is not None and self.detached_at_s is not None:
            raise LocalProtocolError("attachment ledger: attached and detached at once")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
