"""What clients may have, against a model that remembers everything."""

from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from serve_app.access.principal import ANYONE, Principal, Quota
from serve_app.access.quotas import WINDOW_S, LastMinute, Quotas
from session.errors import QuotaExceeded, TooManyOpens, TooManySecrets, TooManySessions
from session.realtime.rate_limits import RateLimit

TINY_S = 1e-6
"""More than rounding can add up to."""
ALICE, BOB = Principal("alice"), Principal("bob")


def refused(quotas: Quotas, quota: Quota, *, sessions: int = 0, now: float) -> QuotaExceeded | None:
    """Try to open a session as Alice; return why that is refused."""
    try:
        quotas.open(ALICE, quota, sessions=sessions, now=now)
    except QuotaExceeded as error:
        return error
    return None


def test_without_bounds_everything_is_let_in_and_nothing_is_remembered() -> None:
    quotas = Quotas()
    assert not any(refused(quotas, Quota(), sessions=n, now=0.0) for n in range(100))
    quotas.make_secret(ALICE, Quota(), now=0.0)
    assert quotas.rates(ALICE, Quota(), now=0.0) == ()


def test_as_many_sessions_as_a_client_may_have_and_not_one_more() -> None:
    quotas = Quotas()
    assert refused(quotas, Quota(max_sessions=2), sessions=1, now=0.0) is None
    error = refused(quotas, Quota(max_sessions=2), sessions=2, now=0.0)
    assert isinstance(error, TooManySessions)
    assert "this API key has as many sessions as it may have at once (2): end one" in error.message
    assert (error.wire_code, error.retryable, error.retry_after_s) == (
        "session_quota_exceeded",
        True,
        None,
    )


def test_as_many_opens_in_any_minute_and_then_the_moment_to_try_again() -> None:
    quotas, quota = Quotas(), Quota(max_opens_per_minute=2)
    assert [refused(quotas, quota, now=now) for now in (0.0, 59.0)] == [None, None]
    error = refused(quotas, quota, now=59.5)
    assert isinstance(error, TooManyOpens)
    assert (error.wire_code, error.retry_after_s) == ("rate_limit_exceeded", 1)
    assert "as many sessions as it may within a minute (2): try again in 1 s" in error.message
    assert refused(quotas, quota, now=60.0) is None
    error = refused(quotas, quota, now=60.0)
    assert error is not None
    assert error.retry_after_s == 59


def test_a_try_that_is_refused_costs_nothing() -> None:
    quotas, quota = Quotas(), Quota(max_sessions=1, max_opens_per_minute=1)
    assert refused(quotas, quota, now=0.0) is None
    for now in range(1, 60):
        assert isinstance(refused(quotas, quota, now=float(now)), TooManyOpens)
        assert isinstance(refused(quotas, quota, sessions=1, now=float(now)), TooManySessions)
    assert refused(quotas, quota, now=60.0) is None


def test_clients_without_a_key_are_told_so() -> None:
    quotas, quota = Quotas(), Quota(max_sessions=1, max_opens_per_minute=1)
    with pytest.raises(TooManySessions, match="whoever comes without an API key has as many"):
        quotas.open(ANYONE, quota, sessions=1, now=0.0)
    quotas.open(ANYONE, quota, sessions=0, now=0.0)
    with pytest.raises(TooManyOpens, match="whoever comes without an API key has opened"):
        quotas.open(ANYONE, quota, sessions=0, now=1.0)


def test_secrets_are_counted_apart_from_opens() -> None:
    quotas, quota = Quotas(), Quota(max_opens_per_minute=1)
    quotas.make_secret(ALICE, quota, now=0.0)
    assert refused(quotas, quota, now=0.0) is None
    with pytest.raises(TooManySecrets, match="as many client secrets as it may") as error:
        quotas.make_secret(ALICE, quota, now=15.5)
    assert (error.value.retry_after_s, error.value.wire_code) == (45, "rate_limit_exceeded")
    quotas.make_secret(BOB, quota, now=15.5)
    quotas.make_secret(ALICE, quota, now=60.0)


def test_what_is_left_is_told_with_the_time_until_everything_is() -> None:
    quotas, quota = Quotas(), Quota(max_opens_per_minute=3)
    assert quotas.rates(ALICE, quota, now=0.0) == (RateLimit(3, 3, 0.0),)
    assert [refused(quotas, quota, now=now) for now in (0.0, 10.0)] == [None, None]
    assert quotas.rates(ALICE, quota, now=30.0) == (RateLimit(3, 1, 40.0),)
    assert quotas.rates(ALICE, quota, now=60.0) == (RateLimit(3, 2, 10.0),)
    assert quotas.rates(BOB, quota, now=30.0) == (RateLimit(3, 3, 0.0),)


def test_a_bound_that_becomes_smaller_holds_at_once() -> None:
    quotas = Quotas()
    for now in (0.0, 1.0, 2.0):
        assert refused(quotas, Quota(max_opens_per_minute=3), now=now) is None
    small = Quota(max_opens_per_minute=1)
    assert quotas.rates(ALICE, small, now=3.0) == (RateLimit(1, 0, 59.0),)
    error = refused(quotas, small, now=3.0)
    assert error is not None
    assert error.retry_after_s == 59


def test_clients_that_are_gone_are_forgotten() -> None:
    minute = LastMinute()
    for number in range(1_000):
        minute.enter(ALICE, 1_000, now=float(number))  # the first one of all, and always there
        minute.enter(Principal(f"client{number}"), 1_000, now=float(number))
    assert len(minute) == 2 * WINDOW_S
    minute.enter(ALICE, 1_000, now=10_000.0)
    assert len(minute) == 1


CLIENTS = st.sampled_from([ALICE, BOB])
BOUNDS = st.none() | st.integers(1, 3)
QUOTAS = st.builds(Quota, max_sessions=BOUNDS, max_opens_per_minute=BOUNDS)


@dataclass
class Remembered:
    """All that one client has ever been let in for."""

    quota: Quota
    sessions: int = 0
    opens: list[float] = field(default_factory=list)
    secrets: list[float] = field(default_factory=list)


def recent(times: list[float], now: float) -> list[float]:
    return [at for at in times if now - WINDOW_S < at <= now]


class QuotaMachine(RuleBasedStateMachine):
    """Clients open and close sessions and make secrets; what they may is counted anew each time."""

    def __init__(self) -> None:
        super().__init__()
        self.quotas = Quotas()
        self.now = 1_000.0
        self.clients = {who: Remembered(Quota(2, 2)) for who in (ALICE, BOB)}

    @rule(later_s=st.floats(0, 45))
    def wait(self, later_s: float) -> None:
        """Let time pass."""
        self.now += later_s

    @rule(who=CLIENTS, quota=QUOTAS)
    def bound(self, who: Principal, quota: Quota) -> None:
        """The key file has other bounds now."""
        self.clients[who].quota = quota

    @rule(who=CLIENTS)
    def open(self, who: Principal) -> None:
        """Try to open a session."""
        client = self.clients[who]
        most, limit = client.quota.max_sessions, client.quota.max_opens_per_minute
        try:
            self.quotas.open(who, client.quota, sessions=client.sessions, now=self.now)
        except TooManySessions:
            assert most is not None
            assert client.sessions >= most
        except TooManyOpens as error:
            self._is_refused_for_as_long(error, client.opens, limit)
        else:
            assert most is None or client.sessions < most
            assert limit is None or len(recent(client.opens, self.now)) < limit
            client.sessions += 1
            if limit is not None:
                client.opens.append(self.now)

    @rule(who=CLIENTS)
    def close(self, who: Principal) -> None:
        """End a session, if there is one."""
        client = self.clients[who]
        client.sessions = max(0, client.sessions - 1)

    @rule(who=CLIENTS)
    def make_secret(self, who: Principal) -> None:
        """Try to make a client secret."""
        client = self.clients[who]
        limit = client.quota.max_opens_per_minute
        try:
            self.quotas.make_secret(who, client.quota, now=self.now)
        except TooManySecrets as error:
            self._is_refused_for_as_long(error, client.secrets, limit)
        else:
            assert limit is None or len(recent(client.secrets, self.now)) < limit
            if limit is not None:
                client.secrets.append(self.now)

    @rule(who=CLIENTS)
    def ask(self, who: Principal) -> None:
        """Read what is left."""
        client = self.clients[who]
        limit = client.quota.max_opens_per_minute
        rates = self.quotas.rates(who, client.quota, now=self.now)
        assert len(rates) == (limit is not None)
        for rate in rates:
            used = len(recent(client.opens, self.now))
            assert (rate.limit, rate.remaining) == (limit, max(0, rate.limit - used))
            assert (rate.reset_s == 0.0) is (used == 0)
            assert recent(client.opens, self.now + rate.reset_s + TINY_S) == []

    @invariant()
    def is_bounded(self) -> None:
        """Nothing is kept but what was let in within a minute before something was last."""
        ever = sum(len(each.opens) + len(each.secrets) for each in self.clients.values())
        assert len(self.quotas) <= min(ever, 2 * 2 * 3)

    def _is_refused_for_as_long(
        self, error: QuotaExceeded, times: list[float], limit: int | None
    ) -> None:
        assert limit is not None
        assert len(recent(times, self.now)) >= limit
        assert error.retry_after_s is not None
        assert len(recent(times, self.now + error.retry_after_s + TINY_S)) < limit
        assert len(recent(times, self.now + error.retry_after_s - 1 - TINY_S)) >= limit


TestQuotas = QuotaMachine.TestCase
