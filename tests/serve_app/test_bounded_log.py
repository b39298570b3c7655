"""However many lines are caused, few are written, and what was held back is told."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.gateway.gateway_watch import GatewayWatch
from serve_app.logs.bounded_log import MOST_KINDS as KINDS
from serve_app.logs.bounded_log import BoundedLog, Line, LineBound
from serve_app.logs.log_lines import Facts
from serve_app.sessions.open_sessions import OpenSessions
from tests.fakes.clock import FakeClock
from tests.fakes.meter import CountedMeter

Steps = list[tuple[str, float]]
MOST_KINDS = 3


def test_the_first_is_written_and_the_others_are_counted() -> None:
    bound: LineBound[str] = LineBound(period_s=10)
    assert bound.admits("401", now=0)
    assert [bound.admits("401", now=now) for now in (0.1, 5, 9.9)] == [False] * 3
    assert bound.admits("403", now=5)
    assert bound.due(now=9.9) == []
    assert bound.due(now=10) == [("401", 3)]


def test_a_flood_that_goes_on_is_told_once_a_period() -> None:
    bound: LineBound[str] = LineBound(period_s=10)
    assert bound.admits("401", now=0)
    told = []
    for second in range(1, 31):
        assert not bound.admits("401", now=second)
        told += bound.due(now=second)
    assert told == [("401", 10)] * 3


def test_after_a_quiet_period_the_next_is_written_again() -> None:
    bound: LineBound[str] = LineBound(period_s=10)
    assert bound.admits("401", now=0)
    assert bound.due(now=10) == []
    assert bound.admits("401", now=10)


def test_kinds_beyond_the_bound_are_counted_together() -> None:
    bound: LineBound[int] = LineBound(period_s=10, most_kinds=2)
    assert [bound.admits(kind, now=0) for kind in range(5)] == [True, True, False, False, False]
    assert bound.due(now=9) == []
    assert bound.due(now=10) == [(None, 3)]


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.floats(0, 3)), max_size=200))
def test_nothing_is_lost_and_the_lines_are_bounded(steps: Steps) -> None:
    bound: LineBound[str] = LineBound(period_s=10, most_kinds=MOST_KINDS)
    now, written, told, lines = 0.0, 0, 0, 0
    for kind, passes in steps:
        now += passes
        written += bound.admits(kind, now=now)
        due = bound.due(now=now)
        told += sum(count for _, count in due)
        lines += len(due)
    for _ in range(3):
        now += 10
        due = bound.due(now=now)
        told += sum(count for _, count in due)
        lines += len(due)
    assert written + told == len(steps)
    assert written + lines <= (MOST_KINDS + 1) * (now // 10 + 2)


def test_a_flood_of_made_up_kinds_is_a_number_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "serve_app")
    log = BoundedLog()
    for status in range(1_000):
        log.write(Line("turned away", Facts(status=status)), now=0.0)
    assert len(caplog.records) == KINDS
    log.flush(10.0)
    [rest] = caplog.records[KINDS:]
    assert vars(rest)["count"] == 1_000 - KINDS
    assert (rest.message, rest.levelname) == ("turned away", "INFO")
    assert not hasattr(rest, "status"), "they were of many kinds"


def test_a_flood_of_one_sentence_holds_back_nothing_of_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "serve_app")
    log = BoundedLog()
    for status in range(1_000):
        log.write(Line("refused", Facts(status=status)), now=0.0)
    caplog.clear()
    log.write(Line("turned away", Facts(status=401), logging.WARNING), now=0.0)
    log.write(Line("refused", Facts(status=401), logging.WARNING), now=0.0)
    log.write(Line("broke", Facts(), logging.ERROR), now=0.0)
    assert [(record.message, record.levelname) for record in caplog.records] == [
        ("turned away", "WARNING"),
        ("refused", "WARNING"),
        ("broke", "ERROR"),
    ]


def test_too_many_kinds_of_a_warning_are_counted_as_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = BoundedLog()
    for status in range(KINDS + 5):
        log.write(Line("turned away", Facts(status=status), logging.WARNING), now=0.0)
    caplog.clear()
    log.flush(10.0)
    [rest] = caplog.records
    assert (rest.message, rest.levelname, vars(rest)["count"]) == ("turned away", "WARNING", 5)


def test_further_kinds_are_told_though_the_others_go_on() -> None:
    bound: LineBound[int] = LineBound(period_s=10, most_kinds=2)
    told = []
    for second in range(22):
        for kind in range(3):
            bound.admits(kind, now=second)
        told += bound.due(now=second)
    assert [count for kind, count in told if kind is None] == [11, 11]


def test_what_is_held_back_is_asked_for_every_second() -> None:
    clock = FakeClock()
    asked: list[float] = []
    watch = GatewayWatch(CountedMeter(), OpenSessions(), clock, asked.append)
    watch.start()
    clock.advance(3.0)
    watch.stop()
    assert asked == [0.0, 1.0, 2.0, 3.0]
