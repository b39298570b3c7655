"""However many lines are caused, few are written, and what was held back is told."""

from hypothesis import given
from hypothesis import strategies as st

from serve_app.line_bound import LineBound

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
