"""Quotas: how many sessions a client has at once, and how many it opens in a minute.

Rule 1: what a client may do is decided in one step: it is counted, or it is refused and is not.
Rule 2: a refused try costs nothing: a client that tries again and again gets in as soon as one
        that waits. One that a stage had no free slot for is given back.
Rule 3: sessions are not counted here, up and down: whoever asks says how many there are.
Rule 4: the last minute is remembered and nothing else, so there is never more than was let in
        during one minute, however many clients there are or were.
"""

import math
from collections import OrderedDict, deque
from typing import Final

from serve_app.access.principal import ANYONE, Principal, Quota
from session.errors import TooManyOpens, TooManySecrets, TooManySessions
from session.realtime.rate_limits import RateLimit

WINDOW_S: Final = 60.0


class LastMinute:
    """When clients did something that is bounded per minute, as a sliding window for each.

    A bound of 30 is never passed in any 60 seconds, which a bucket of tokens would allow, and when
    there is room again is known to the moment.
    """

    def __init__(self) -> None:
        # A plain dict finds its first key by walking over the places of all that were removed.
        self._times: OrderedDict[Principal, deque[float]] = OrderedDict()
        """The client that was last let in is the last one."""

    def __len__(self) -> int:
        return sum(map(len, self._times.values()))

    def enter(self, who: Principal, limit: int | None, *, now: float) -> int:
        """Remember that `who` is let in, and return 0; or the whole seconds until there is room.

        Nothing is remembered where there is no bound.
        """
        if limit is None:
            return 0
        times = self._of(who, now)
        if len(times) >= limit:
            return math.ceil(times[-limit] + WINDOW_S - now)
        times.append(now)
        self._times[who] = times
        self._times.move_to_end(who)
        self._forget(now)
        return 0

    def take_back(self, who: Principal, *, at: float) -> None:
        """Forget that `who` was let in at a time."""
        times = self._times.get(who)
        if times is not None and at in times:
            times.remove(at)

    def rate(self, who: Principal, limit: int, *, now: float) -> RateLimit:
        """Return what is left, and how long until everything is."""
        times = self._of(who, now)
        reset_s = times[-1] + WINDOW_S - now if times else 0.0
        return RateLimit(limit, max(0, limit - len(times)), reset_s)

    def _of(self, who: Principal, now: float) -> deque[float]:
        times = self._times.get(who, deque())
        while times and times[0] + WINDOW_S <= now:
            times.popleft()
        return times

    def _forget(self, now: float) -> None:
        """Drop the clients that were last let in more than a minute ago."""
        while not self._of(next(iter(self._times)), now):
            self._times.popitem(last=False)


class Quotas:
    """What the clients of one gateway have had of what they may have."""

    def __init__(self) -> None:
        self._opens = LastMinute()
        self._secrets = LastMinute()

    def __len__(self) -> int:
        return len(self._opens) + len(self._secrets)

    def open(self, who: Principal, quota: Quota, *, sessions: int, now: float) -> None:
        """Count an open, with so many sessions there; raises QuotaExceeded."""
        if quota.max_sessions is not None and sessions >= quota.max_sessions:
            raise TooManySessions(
                f"{_subject(who)} has as many sessions as it may have at once "
                f"({quota.max_sessions}): end one, or try again when one has ended (one whose "
                "client has left may last until disconnect_grace_s is over)"
            )
        limit = quota.max_opens_per_minute
        wait_s = self._opens.enter(who, limit, now=now)
        if wait_s > 0:
            raise TooManyOpens(
                f"{_subject(who)} has opened as many sessions as it may within a minute ({limit}): "
                f"try again in {wait_s} s",
                retry_after_s=wait_s,
            )

    def take_back_open(self, who: Principal, *, at: float) -> None:
        """Count an open no more that was counted at a time, if it was."""
        self._opens.take_back(who, at=at)

    def make_secret(self, who: Principal, quota: Quota, *, now: float) -> None:
        """Count a client secret: as many a minute as opens; raises QuotaExceeded."""
        limit = quota.max_opens_per_minute
        wait_s = self._secrets.enter(who, limit, now=now)
        if wait_s > 0:
            raise TooManySecrets(
                f"{_subject(who)} has made as many client secrets as it may within a minute "
                f"({limit}): try again in {wait_s} s, or give one to several clients",
                retry_after_s=wait_s,
            )

    def rates(self, who: Principal, quota: Quota, *, now: float) -> tuple[RateLimit, ...]:
        """Return what a client is told of its rates; nothing where none is bounded."""
        limit = quota.max_opens_per_minute
        return () if limit is None else (self._opens.rate(who, limit, now=now),)


def _subject(who: Principal) -> str:
    """Name a client to itself: a page with a client secret need not know the key's name."""
    return "whoever comes without an API key" if who == ANYONE else "this API key"
