"""How long a session lasts, and the two steps of its end."""

from dataclasses import replace

import pytest

from session.config import SessionLimits
from session.effects import CloseSocket, CloseStages, WakeAt
from session.errors import StageTimeout
from session.events import SessionClosed, SessionExpired
from session.lifecycle import Life
from session.socket_events import SessionExpiring
from session.socket_stimuli import ReaderStalled, SocketLost
from session.stimuli import (
    CloseRequested,
    HeartbeatReceived,
    ReleaseFailed,
    StagesOpened,
    Ticked,
)
from tests.session.driver import Driver, names, speaking

LIMITS = SessionLimits(idle_ttl_s=10.0, max_session_s=None)


def failed(driver: Driver) -> ReleaseFailed:
    return ReleaseFailed(driver.asked(CloseStages)[-1].fence, StageTimeout("stage1 is slow"))


def expired(driver: Driver) -> list[tuple[str, int]]:
    reasons = [event.reason for event in driver.said(SessionExpired)]
    return list(zip(reasons, [close.code for close in driver.asked(CloseSocket)], strict=True))


# --- idle -----------------------------------------------------------------------------------------


def test_a_session_in_which_nothing_happens_ends() -> None:
    d = Driver(limits=LIMITS)
    assert d.asked(WakeAt)[-1].at_s == d.now + 10.0
    d.now += 9.9
    assert names(d.do(Ticked())) == []
    d.now += 0.1
    assert names(d.do(Ticked())) == ["CloseStages"]
    d.released()
    assert expired(d) == [("idle_ttl_expired", 1000)]


def test_anything_the_client_does_counts() -> None:
    d = Driver(limits=LIMITS)
    d.now += 9.0
    d.do(HeartbeatReceived())
    d.now += 9.0
    assert names(d.do(Ticked())) == []
    assert d.asked(WakeAt)[-1].at_s == pytest.approx(d.now + 1.0)


def test_a_unit_at_the_model_is_not_idleness() -> None:
    d = Driver(limits=LIMITS)
    d.append(1000)
    d.now += 60.0
    assert names(d.do(Ticked())) == []
    d.listen()
    d.now += 9.9
    assert names(d.do(Ticked())) == []
    d.now += 0.2
    assert "CloseStages" in names(d.do(Ticked()))


def test_null_never_expires() -> None:
    d = Driver(limits=replace(LIMITS, idle_ttl_s=None))
    d.now += 1e6
    d.do(HeartbeatReceived())
    d.now += 299
    assert names(d.do(Ticked())) == []


# --- the longest a session may last ------------------------------------------------------------


def test_the_end_of_a_long_session_is_announced_and_comes() -> None:
    d = Driver(limits=SessionLimits(idle_ttl_s=None, max_session_s=600.0))
    while d.now < 640.0 - 1e-9:
        d.now += 20.0
        d.do(HeartbeatReceived())
    effects = d.do(Ticked())
    [told] = d.said(SessionExpiring, effects)
    assert (told.reason, told.expires_in_ms) == ("max_session_duration", 60_000)
    assert d.said(SessionExpiring, d.do(Ticked())) == []
    speaking(d)
    d.now = 700.0
    d.do(Ticked())
    d.released()
    assert expired(d) == [("max_session_duration", 1001)]


def test_a_short_session_is_told_at_half_time() -> None:
    d = Driver(limits=SessionLimits(max_session_s=20.0))
    d.now += 10.0
    assert d.said(SessionExpiring, d.do(Ticked()))[0].expires_in_ms == 10_000


def test_time_counts_from_when_the_session_is_open() -> None:
    d = Driver(limits=SessionLimits(max_session_s=20.0), opened=False)
    d.now += 15.0
    d.do(StagesOpened(d.session.fence))
    d.now += 6.0
    assert names(d.do(Ticked())) == []


# --- two steps ------------------------------------------------------------------------------------


def test_a_release_that_fails_is_told_once_and_tried_again_until_it_succeeds() -> None:
    d = Driver(limits=SessionLimits(reaper_interval_s=5.0))
    d.do(CloseRequested())
    effects = d.do(failed(d))
    assert names(effects) == ["SessionClosed", "CloseSocket"]
    assert not d.session.is_over, "the slot is still taken"
    assert d.session.life is Life.HOLDING
    assert d.asked(WakeAt, effects)[-1].at_s == d.now + 5.0
    d.now += 5.0
    assert names(d.do(Ticked())) == ["CloseStages"]
    assert names(d.do(failed(d))) == []
    d.now += 5.0
    assert names(d.do(Ticked())) == ["CloseStages"]
    assert names(d.released()) == []
    assert d.session.is_over
    assert len(d.said(SessionClosed)) == 1


def test_nothing_changes_a_session_that_only_holds_its_slot() -> None:
    d = Driver()
    d.do(CloseRequested())
    d.do(failed(d))
    for stimulus in (CloseRequested(), HeartbeatReceived(), ReaderStalled(), SocketLost()):
        assert names(d.do(stimulus)) == []


def test_a_tick_does_not_ask_twice_for_one_release() -> None:
    d = Driver()
    d.do(CloseRequested())
    d.do(failed(d))
    d.now += 5.0
    assert names(d.do(Ticked())) == ["CloseStages"]
    assert names(d.do(Ticked())) == []


def test_an_expiry_happens_once() -> None:
    d = Driver(limits=replace(LIMITS, max_session_s=10.0))
    d.now += 10.0
    assert names(d.do(Ticked())).count("CloseStages") == 1
    d.released()
    assert expired(d) == [("max_session_duration", 1001)]
    d.now += 1000.0
    assert d.do(Ticked()) == []


def test_a_silent_socket_ends_a_session_that_nobody_can_resume() -> None:
    d = Driver(limits=SessionLimits(idle_ttl_s=None))
    d.now += 300.0
    assert names(d.do(Ticked())) == ["CloseStages"]
    d.released()
    assert expired(d) == [("idle_timeout", 1001)]
