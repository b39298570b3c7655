"""Where a gateway's clients get what they may have: bounds, sessions that there are, the time."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from serve_app.access.key_ring import KeyRing
from serve_app.access.principal import Principal, Quota
from serve_app.access.quotas import Quotas
from serve_app.clock import Clock
from session.config import SessionLimits
from session.realtime.rate_limits import RateLimit


class QuotaDesk:
    """Knows every client's quota, as the key file has it now."""

    def __init__(
        self,
        keys: KeyRing,
        held_by: Callable[[Principal], int],
        limits: SessionLimits,
        clock: Clock,
    ) -> None:
        self._keys = keys
        self._held_by = held_by
        self._usual = Quota(limits.max_sessions_per_key, limits.max_opens_per_key_per_minute)
        self._clock = clock
        self._quotas = Quotas()

    def quota(self, who: Principal) -> Quota:
        """Return what a client may have."""
        return self._keys.terms(who).apply_to(self._usual)

    def open(self, who: Principal) -> Callable[[], None]:
        """Count that a client opens a session now; raises QuotaExceeded.

        Returns what takes the count back.
        """
        has, now = self._held_by(who), self._clock.now()
        self._quotas.open(who, self.quota(who), sessions=has, now=now)
        return partial(self._quotas.take_back_open, who, at=now)

    def make_secret(self, who: Principal) -> None:
        """Count that a client makes a client secret now; raises QuotaExceeded."""
        self._quotas.make_secret(who, self.quota(who), now=self._clock.now())

    def rates(self, who: Principal) -> tuple[RateLimit, ...]:
        """Return what a client is told of its rates now."""
        return self._quotas.rates(who, self.quota(who), now=self._clock.now())

    def shown(self, who: Principal, limits: SessionLimits) -> SessionLimits:
        """Return the server's bounds as they are for a client."""
        quota = self.quota(who)
        return replace(
            limits,
            max_sessions_per_key=quota.max_sessions,
            max_opens_per_key_per_minute=quota.max_opens_per_minute,
        )
