"""What clients may have, against a model that remembers everything."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from serve_app.key_file import ANYONE, Principal, Quota
from serve_app.quotas import WINDOW_S, LastMinute, Quotas
from session.errors import QuotaExceeded, TooManyOpens, TooManySecrets, TooManySessions
from session.realtime.rate_limits import RateLimit

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
        minute.add(Principal(f"client{number}"), now=float(number))
    assert len(minute) == WINDOW_S
    minute.add(ALICE, now=10_000.0)
    assert len(minute) == 1


LIMITS = {ALICE: 2, BOB: 3}
CLIENTS = st.sampled_from(sorted(LIMITS, key=lambda who: who.name))


class MinuteMachine(RuleBasedStateMachine):
    """Every time that a client was let in is kept, and counted anew each time."""

    def __init__(self) -> None:
        super().__init__()
        self.minute = LastMinute()
        self.let_in: dict[Principal, list[float]] = {who: [] for who in LIMITS}
        self.now = 1_000.0

    @rule(later_s=st.integers(0, 45))
    def wait(self, later_s: int) -> None:
        """Let time pass."""
        self.now += later_s

    @rule(who=CLIENTS)
    def try_one(self, who: Principal) -> None:
        """Let a client in, unless it has been as often as it may."""
        wait_s = self.minute.wait_s(who, LIMITS[who], now=self.now)
        recent = self._recent(who, self.now)
        if wait_s > 0:
            assert len(recent) == LIMITS[who]
            assert len(self._recent(who, self.now + wait_s)) < LIMITS[who]
            assert len(self._recent(who, self.now + wait_s - 0.5)) == LIMITS[who]
        else:
            assert len(recent) < LIMITS[who]
            self.minute.add(who, now=self.now)
            self.let_in[who].append(self.now)

    @rule(who=CLIENTS)
    def ask(self, who: Principal) -> None:
        """Read what is left."""
        rate = self.minute.rate(who, LIMITS[who], now=self.now)
        assert rate.remaining == LIMITS[who] - len(self._recent(who, self.now))
        assert self._recent(who, self.now + rate.reset_s) == []
        assert (rate.reset_s == 0.0) is (rate.remaining == LIMITS[who])

    @invariant()
    def is_bounded(self) -> None:
        """No more is kept than may be let in within a minute."""
        assert len(self.minute) <= sum(LIMITS.values())

    def _recent(self, who: Principal, now: float) -> list[float]:
        return [at for at in self.let_in[who] if now - WINDOW_S < at]


TestMinute = MinuteMachine.TestCase
