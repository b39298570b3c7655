"""Client secrets: short-lived keys for browsers, each with the settings of its sessions.

Rule 1: a value is known only to whoever was given it. What is kept is its digest under a key of
        this process, so that the time of a look-up says nothing about the values in force.
Rule 2: a secret opens any number of sockets until it expires; a session that has begun goes on.
Rule 3: what is kept is bounded, in number and in bytes. Nothing is forgotten before its time: when
        there is no room, no further secret is made.
Rule 4: the time is an argument, in Unix seconds.

They live in the gateway's process: after a restart, pages ask for new ones.
"""

import hmac
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

from serve_app.access.principal import Principal
from session.config import ConfigPatch
from session.errors import LimitError

SECRET_PREFIX: Final = "ek_"
MOST_SECRETS: Final = 10_000
MOST_HELD_BYTES: Final = 32 * 1024 * 1024
"""Size of all settings together, as the requests for the secrets had them."""


@dataclass(frozen=True, slots=True)
class ClientSecret:
    """What a secret is good for."""

    expires_unix_s: int
    principal: Principal
    """Whose key made it; its sessions are that client's."""
    settings: ConfigPatch
    """What its sessions start with, where that is not the server's default."""


@dataclass(frozen=True, slots=True)
class _Held:
    secret: ClientSecret
    size_bytes: int


class ClientSecrets:
    """The secrets in force."""

    def __init__(
        self, digest_key: bytes, *, most: int = MOST_SECRETS, most_bytes: int = MOST_HELD_BYTES
    ) -> None:
        self._digest_key = digest_key
        self._most = most
        self._most_bytes = most_bytes
        self._held: dict[bytes, _Held] = {}
        self._by_expiry: list[tuple[int, bytes]] = []
        self._size_bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    def add(self, value: str, secret: ClientSecret, *, size_bytes: int, now_unix_s: int) -> None:
        """Put a secret in force; raise LimitError where there is no room for it.

        `size_bytes` is what its settings are counted as.
        """
        self.make_room(size_bytes, now_unix_s=now_unix_s)
        digest = self._digest(value)
        self._held[digest] = _Held(secret, size_bytes)
        self._size_bytes += size_bytes
        heappush(self._by_expiry, (secret.expires_unix_s, digest))

    def make_room(self, size_bytes: int, *, now_unix_s: int) -> None:
        """Forget what has expired; raise LimitError where there is no room for one more."""
        self._forget_expired(now_unix_s)
        is_full = len(self._held) >= self._most
        if is_full or self._size_bytes + size_bytes > self._most_bytes:
            raise LimitError(
                "too many client secrets are in force: let them expire sooner (expires_after), or "
                "give one to several clients"
            )

    def find(self, value: str, *, now_unix_s: int) -> ClientSecret | None:
        """Return what a value is good for; None when it is unknown or has expired."""
        held = self._held.get(self._digest(value))
        if held is None or held.secret.expires_unix_s <= now_unix_s:
            return None
        return held.secret

    def _forget_expired(self, now_unix_s: int) -> None:
        while self._by_expiry and self._by_expiry[0][0] <= now_unix_s:
            _, digest = heappop(self._by_expiry)
            self._size_bytes -= self._held.pop(digest).size_bytes

    def _digest(self, value: str) -> bytes:
        return hmac.digest(self._digest_key, value.encode(), "sha256")
