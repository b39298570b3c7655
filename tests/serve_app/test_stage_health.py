"""A stage's health is told at once where it is not well, and asked for once at a time."""

import asyncio

import pytest

from serve_app.leasing.stage_health import StageHealth

AT_ONCE = 0.0


class Stage:
    """A stage that answers when a test says so."""

    def __init__(self) -> None:
        self.asked = 0
        self._answers: asyncio.Queue[str] = asyncio.Queue()

    async def ask(self) -> str:
        self.asked += 1
        return await self._answers.get()

    async def says(self, answer: str) -> None:
        """Answer, and let it be heard."""
        self._answers.put_nowait(answer)
        for _ in range(5):
            await asyncio.sleep(0)


async def test_a_stage_that_starts_holds_nobody_up_and_is_asked_once() -> None:
    stage = Stage()
    health = StageHealth("stage0", stage.ask, moment_s=AT_ONCE)
    for _ in range(3):
        assert await health.answer() == "starting: stage0 has not answered yet"
        await asyncio.sleep(0)
    assert stage.asked == 1
    await stage.says("stage0 did not answer in time")
    assert await health.answer() == "starting: stage0 did not answer in time"
    await stage.says("ok")
    assert stage.asked == 2
    answering = asyncio.ensure_future(health.answer())
    await stage.says("ok")
    assert await answering == "ok"


async def test_one_that_was_well_is_waited_for_and_one_that_is_ill_is_not() -> None:
    stage = Stage()
    health = StageHealth("stage1", stage.ask, moment_s=AT_ONCE)
    await health.answer()
    await stage.says("ok")
    waiting = asyncio.ensure_future(health.answer())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done(), "it was well a moment ago"
    await stage.says("stage1 is gone")
    assert await waiting == "stage1 is gone"
    assert await health.answer() == "stage1 is gone", "and it does not wait now"


async def test_who_goes_away_takes_no_answer_from_another() -> None:
    stage = Stage()
    health = StageHealth("stage0", stage.ask, moment_s=AT_ONCE)
    await health.answer()
    await stage.says("ok")
    gone = asyncio.ensure_future(health.answer())
    stays = asyncio.ensure_future(health.answer())
    await asyncio.sleep(0)
    gone.cancel()
    await stage.says("ok")
    assert await stays == "ok"
    assert gone.cancelled()
    assert stage.asked == 2


async def test_what_is_our_fault_is_not_taken_for_the_stages() -> None:
    async def ask() -> str:
        raise KeyError("stage0")

    health = StageHealth("stage0", ask)
    for _ in range(2):
        with pytest.raises(KeyError):
            await health.answer()
