"""Who a client is, and what it may have."""

from dataclasses import dataclass, replace
from typing import Final

ANYONE_NAME: Final = "anyone"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a client is: the owner of a key. Sessions and opens are counted by it."""

    name: str
    """Whose key it is: 1 to 64 letters, digits and `. _ -`. Without, `key_` and the beginning of
    the key's SHA-256."""


ANYONE: Final = Principal(ANYONE_NAME)
"""Every client, where no key is asked for."""


@dataclass(frozen=True, slots=True)
class Quota:
    """What one client may have; None: as much as there is."""

    max_sessions: int | None = None
    """Sessions at once, with or without a client; instead of `max_sessions_per_key`."""
    max_opens_per_minute: int | None = None
    """Sessions opened within any 60 s; instead of `max_opens_per_key_per_minute`."""


@dataclass(frozen=True, slots=True)
class QuotaPatch:
    """Exactly the bounds that are set for a client: names of `Quota` fields, and values."""

    changes: tuple[tuple[str, int | None], ...] = ()

    def apply_to(self, quota: Quota) -> Quota:
        """Return `quota` with these bounds instead."""
        return replace(quota, **dict(self.changes))


USUAL_TERMS: Final = QuotaPatch()
"""What all may have."""
