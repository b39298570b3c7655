from dataclasses import replace

from session.fence import Fence, FenceVerdict
from session.ids import SessionId

NOW = Fence(SessionId("s"), 2, 5, 9)


def test_same_epoch_is_current_whatever_the_turn() -> None:
    assert NOW.judge(replace(NOW, turn=1)) is FenceVerdict.CURRENT
    assert NOW.judge(NOW.next_turn()) is FenceVerdict.CURRENT


def test_older_epoch_or_incarnation_is_stale() -> None:
    assert NOW.judge(replace(NOW, epoch=4)) is FenceVerdict.STALE
    assert NOW.judge(replace(NOW, incarnation=1, epoch=99)) is FenceVerdict.STALE


def test_the_future_and_strangers_are_unknown() -> None:
    assert NOW.judge(NOW.next_epoch()) is FenceVerdict.UNKNOWN
    assert NOW.judge(replace(NOW, incarnation=3, epoch=0)) is FenceVerdict.UNKNOWN
    assert NOW.judge(replace(NOW, session_id=SessionId("t"))) is FenceVerdict.UNKNOWN


def test_a_new_epoch_is_a_new_turn() -> None:
    after = NOW.next_epoch()
    assert (after.epoch, after.turn) == (6, 10)
