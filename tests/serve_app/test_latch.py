"""The latch of a lease: every call that waits ends once, whatever ends it."""

import asyncio
from collections.abc import Awaitable

import pytest

from serve_app.leasing.latch import Latch
from session.errors import StageFailed, StageRefused, StageTimeout, StageUnavailable

LONG_S = 60.0
GONE = StageUnavailable("gone")


class Remote:
    """A call to another process: answered, failed or left open by the test."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.submitted = 0
        self.abandoned = 0

    def submit(self) -> Awaitable[str]:
        """Send."""
        self.submitted += 1
        return self.answer

    def abandon(self) -> None:
        """Give up."""
        self.abandoned += 1

    def through(self, latch: Latch, timeout_s: float = LONG_S) -> "asyncio.Task[str]":
        """Make the call through a latch."""
        call = latch.call(self.submit, abandon=self.abandon, timeout_s=timeout_s)
        return asyncio.get_running_loop().create_task(call)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_an_answer_ends_its_call() -> None:
    latch, remote = Latch(), Remote()
    call = remote.through(latch)
    await settle()
    remote.answer.set_result("yes")
    assert await call == "yes"
    assert (remote.abandoned, latch.waiting, latch.late_answers) == (0, 0, 0)


async def test_an_error_ends_its_call_and_no_other() -> None:
    latch, broken, other = Latch(), Remote(), Remote()
    calls = [broken.through(latch), other.through(latch)]
    await settle()
    broken.answer.set_exception(StageFailed("bad unit"))
    with pytest.raises(StageFailed, match="bad unit"):
        await calls[0]
    other.answer.set_result("fine")
    assert await calls[1] == "fine"


async def test_closing_wakes_every_call_once_and_abandons_it() -> None:
    latch, remotes = Latch(), [Remote() for _ in range(5)]
    calls = [remote.through(latch) for remote in remotes]
    await settle()
    assert latch.waiting == 5
    latch.close(GONE)
    latch.close(StageUnavailable("a second reason"))
    ends = await asyncio.gather(*calls, return_exceptions=True)
    assert ends == [GONE] * 5
    assert [remote.abandoned for remote in remotes] == [1] * 5
    assert latch.waiting == 0


async def test_after_the_close_nothing_is_submitted() -> None:
    latch, remote = Latch(), Remote()
    latch.close(GONE)
    with pytest.raises(StageUnavailable):
        await remote.through(latch)
    assert remote.submitted == 0
    with pytest.raises(StageUnavailable):
        latch.check()


async def test_a_late_answer_only_counts() -> None:
    latch, remote, failed = Latch(), Remote(), Remote()
    calls = [remote.through(latch), failed.through(latch)]
    await settle()
    latch.close(GONE)
    await asyncio.gather(*calls, return_exceptions=True)
    remote.answer.set_result("too late")
    failed.answer.set_exception(StageRefused("cancelled"))
    await settle()
    assert latch.late_answers == 1


async def test_an_answer_in_the_same_instant_as_the_close_is_not_given_out() -> None:
    latch, remote = Latch(), Remote()
    call = remote.through(latch)
    await settle()
    remote.answer.set_result("yes")
    latch.close(GONE)
    with pytest.raises(StageUnavailable):
        await call
    assert remote.abandoned == 0


async def test_a_timeout_ends_one_call_and_leaves_the_latch_open() -> None:
    latch, slow, other = Latch(), Remote(), Remote()
    waiting = other.through(latch)
    with pytest.raises(StageTimeout, match=r"0\.01 s"):
        await slow.through(latch, timeout_s=0.01)
    assert slow.abandoned == 1
    assert not latch.is_closed
    other.answer.set_result("fine")
    assert await waiting == "fine"


async def test_a_caller_that_is_cancelled_abandons_its_call() -> None:
    latch, remote = Latch(), Remote()
    call = remote.through(latch)
    await settle()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert remote.abandoned == 1
    assert latch.waiting == 0
