"""The keys in force at one moment, found at once however many there are."""

import hashlib
import hmac
from collections.abc import Iterable

from serve_app.access.key_file import ApiKey, Principal, QuotaPatch


class KeyTable:
    """Some keys. Of two that are the same, the first one counts: that of the file has a name."""

    def __init__(self, keys: Iterable[ApiKey]) -> None:
        self.keys = tuple(keys)
        self._by_digest: dict[bytes, ApiKey] = {}
        self._terms: dict[Principal, dict[str, int | None]] = {}
        for key in self.keys:
            self._by_digest.setdefault(_digest(key.value), key)
            self._terms.setdefault(key.principal, {}).update(key.terms.changes)

    def owner(self, presented: str) -> Principal | None:
        """Return whose key `presented` is; None when it is none of the keys."""
        found = self._by_digest.get(_digest(presented))
        if found is None:
            return None
        is_it = hmac.compare_digest(presented.encode(), found.value.encode())
        return found.principal if is_it else None

    def knows(self, principal: Principal) -> bool:
        """Whether one of the keys is of this owner."""
        return principal in self._terms

    def terms(self, principal: Principal) -> QuotaPatch:
        """Return what is set for an owner, by whichever of its keys."""
        return QuotaPatch(tuple(self._terms.get(principal, {}).items()))


def _digest(value: str) -> bytes:
    return hashlib.sha256(value.encode()).digest()
