"""Typed identifiers, and the port through which the kernel is given new ones."""

from typing import NewType, Protocol

SessionId = NewType("SessionId", str)
ResponseId = NewType("ResponseId", str)
ItemId = NewType("ItemId", str)
OperationId = NewType("OperationId", str)
EventId = NewType("EventId", str)
AttachmentId = NewType("AttachmentId", str)
RequestId = NewType("RequestId", str)
"""Names one call into a model, in every process. Derived from its fence and never used twice."""


class IdFactory(Protocol):
    """Makes identifiers. The kernel never draws randomness itself."""

    def new(self, prefix: str) -> str:
        """Return a fresh, unguessable id of the form ``prefix_xxxxxxxx``."""
        ...

    def token(self) -> str:
        """Return a fresh secret of at least 128 bits, as text."""
        ...
